"""The name of a classifier of torchvision or timm -> the classifier, built for the user's classes; and its weights."""

import difflib
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from torch import Tensor, nn

from deepsup.adapters import with_torchvision
from deepsup.errors import NetworkError, nearest
from deepsup.trainer.networks._specs import SPECS


@cache
def zoo() -> dict[str, list[str]]:
    """Return package -> the names of its classifiers, of torchvision and timm as far as they are installed."""
    return {package: names for package, list_names in _LISTS.items() if (names := _listed(list_names))}


def _listed(list_names: Callable[[], list[str]]) -> list[str]:
    try:
        return list(with_torchvision(list_names))
    except ImportError:
        return []


def _torchvision_names() -> list[str]:
    from torchvision import models

    return list(models.list_models(module=models))


def _timm_names() -> list[str]:
    import timm

    return list(timm.list_models())


_LISTS = {"torchvision": _torchvision_names, "timm": _timm_names}


def full_name(name: str) -> str:
    """Return ``torchvision/resnet18`` for ``resnet18``: a run has to say whose net it trained. Others stay.

    torchvision comes first. ``timm/resnet18`` asks for timm's.
    """
    if name in SPECS or ":" in name or "/" in name:
        return name
    return next((f"{package}/{name}" for package, names in zoo().items() if name in names), name)


def is_of_zoo(name: str) -> bool:
    """Whether a name has the form ``torchvision/NAME`` or ``timm/NAME``."""
    return name.partition("/")[0] in _LISTS and "/" in name


def build(name: str, classes: int, channels: int, options: dict[str, Any]) -> nn.Module:
    """Return the classifier called ``torchvision/NAME`` or ``timm/NAME``, with drawn weights."""
    package, model = _known(name)
    if package == "timm":
        import timm

        make = partial(timm.create_model, model, num_classes=classes, in_chans=channels, **options)
    else:
        from torchvision import models

        if channels != 3:
            raise NetworkError(
                f"{name} takes images of 3 channels, these have {channels}; timm's networks take any number: "
                f"--network timm/{model}"
            )
        heads = {"aux_logits": False, "init_weights": True} if model in ("googlenet", "inception_v3") else {}
        make = partial(models.get_model, model, weights=None, num_classes=classes, **{**heads, **options})
    try:
        return make()
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        given = ", ".join(f"{key}={value!r}" for key, value in options.items()) or "none"
        raise NetworkError(f"{name} cannot be built ({error}); network options: {given}") from error


def published_weights(name: str) -> dict[str, Tensor]:
    """Return the weights that torchvision or timm publish for a classifier, from their cache or the network."""
    package, model = _known(name)
    try:
        if package == "timm":
            import timm

            return dict(timm.create_model(model, pretrained=True).state_dict())
        from torchvision import models

        return dict(models.get_model_weights(model).DEFAULT.get_state_dict(progress=False, check_hash=True))
    except Exception as error:  # of urllib, of the hub's client, of a package without weights for this name
        raise NetworkError(
            f"no published weights for {name} ({type(error).__name__}: {' '.join(str(error).split())[:150]}); give a "
            f"file: --weights FILE"
        ) from error


def _known(name: str) -> tuple[str, str]:
    """Return package and model, if there are such."""
    package, _, model = name.partition("/")
    if package not in zoo():
        raise NetworkError(f"network {name} needs {package}, which is not installed or does not import; "
                           f"pip install {package}")  # fmt: skip
    if model not in zoo()[package]:
        near = difflib.get_close_matches(model, zoo()[package], n=3, cutoff=0.5)
        raise NetworkError(f"{package} has no network {model!r}; " + (
            f"did you mean {' or '.join(near)}?" if near else f"see {package}.list_models()"))  # fmt: skip
    return package, model


def unknown(name: str) -> NetworkError:
    """Return the error about a name that neither deepsup nor torchvision nor timm has."""
    if name.endswith(".py"):
        return NetworkError(f"network {name} names a file; expected a class in it too: {name}:MyNet")
    own = dict.fromkeys(SPECS, "deepsup networks")
    names = {model: package for package, models in reversed(zoo().items()) for model in models} | own
    near = difflib.get_close_matches(name.lower().replace(" ", ""), names, n=3, cutoff=0.7)
    if near:
        advice = f"did you mean {' or '.join(f'{model} ({names[model]})' for model in near)}?"
    elif zoo():
        advice = f"expected one of deepsup networks, a classifier of {' or '.join(zoo())}, or my_file.py:MyNet"
    else:
        advice = f"for resnet18 and the like: pip install timm; without it {nearest(name, SPECS, most=len(SPECS))}"
    return NetworkError(f"no network is called {name!r}; {advice}")
