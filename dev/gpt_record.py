"""A character-level GPT with and without companions through its own last layers: results/gpt.json.

    python dev/gpt_record.py pilot gpt-pilot.json       # choose rate, alpha and schedule on validation text
    python dev/gpt_record.py record results/gpt.json    # 5 seeds of each, one thread

The text is Python's own documentation, as ``pydoc`` has it (465,000 characters, part of every Python). Both nets have
the same recipe; the rate is chosen for the net without companions. Then per-layer perplexity, and generation that
leaves the net early: after the first block whose most likely character is more probable than a threshold. The threshold
is calibrated on validation text, so that the characters agree with those of the whole net at 98 % of the positions.

B batch, L characters, D width, K kinds of characters.
"""

import argparse
import json
import math
import pydoc_data.topics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup import Companion, DeeplySupervised, Objective, supervise
from deepsup.trainer.runs import environment_now

WIDTH, HEADS, BLOCKS, LENGTH, BATCH = 64, 4, 4, 64, 16
AGREE = 0.98
RATES = (8e-3, 1.6e-2, 3.2e-2)
TAPS = "blocks.[0-2]"  # every block but the last, which the output follows


@dataclass(frozen=True)
class Recipe:
    """What is chosen on validation text; alpha 0 is the net without companions."""

    rate: float = 8e-3
    alpha: float = 0.0
    rising: bool = False  # with the depth, like LayerSkip
    schedule: str = "linear"
    steps: int = 400


class Block(nn.Module):
    """A transformer block; ``past`` has the keys and values of the characters before."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention, self.join = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )
        self.norm2, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def keys_and_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B,L,D] -> queries, keys, values, each [B,heads,L,D/heads]."""
        q, k, v = (each.unflatten(2, (HEADS, -1)).transpose(1, 2) for each in self.attention(self.norm1(x)).chunk(3, 2))
        return q, k, v

    def forward(self, x: Tensor, past: list[Tensor] | None = None) -> Tensor:
        """[B,L,D] -> [B,L,D]."""
        q, k, v = self.keys_and_values(x)
        if past is not None:
            k, v = grown(past, k, v)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)
        x = x + self.join(attended.transpose(1, 2).flatten(2))
        y: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return y


def grown(past: list[Tensor], k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Add keys and values to those of the characters before."""
    past[:] = [torch.cat([old, new], 2) for old, new in zip(past, (k, v), strict=True)] if past else [k, v]
    return past[0], past[1]


class Gpt(nn.Module):
    """Character numbers [B,L] -> scores of the next character [B,L,K]."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(classes, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm, self.unembed = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, classes, bias=False)
        for embedding in (self.characters, self.places):
            nn.init.normal_(embedding.weight, std=0.1)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the scores."""
        x = self.characters(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.unembed(self.norm(x))
        return scores


def read_text() -> tuple[dict[str, Tensor], str]:
    """Return part -> its characters as numbers, and the alphabet; whole topics are held out."""
    topics = [pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics)]
    alphabet = "".join(sorted(set("".join(topics))))
    number = {character: place for place, character in enumerate(alphabet)}
    texts = {"test": topics[4::10], "validation": topics[2::10] + topics[9::10]}
    texts["train"] = [topic for place, topic in enumerate(topics) if place % 10 not in (2, 4, 9)]
    return {part: torch.tensor([number[each] for each in "\n".join(text)]) for part, text in texts.items()}, alphabet


def windows(text: Tensor, count: int = 0) -> tuple[Tensor, Tensor]:
    """Return inputs and the characters after them [N,L], without overlap; of a long text evenly spread ones."""
    cut = text[: (len(text) - 1) // LENGTH * LENGTH]
    inputs, after = cut.view(-1, LENGTH), text[1 : len(cut) + 1].view(-1, LENGTH)
    chosen = torch.linspace(0, len(inputs) - 1, min(count or len(inputs), len(inputs))).long()
    return inputs[chosen], after[chosen]


def objective_of(net: DeeplySupervised, recipe: Recipe) -> Objective:
    """Return the objective of a recipe; with rising weights alpha is their mean."""
    count = len(net.taps)
    alpha = [recipe.alpha * (2 * place / (count + 1) if recipe.rising else 1) for place in range(1, count + 1)]
    return Objective(net, alpha=alpha, schedule=recipe.schedule, steps=recipe.steps)


def train(recipe: Recipe, seed: int, text: Tensor, classes: int) -> tuple[DeeplySupervised, float]:
    """Return a trained net, and the seconds that it took; without companions they only watch, so that both report."""
    torch.manual_seed(seed)
    model = Gpt(classes)
    companion = Companion(head="output", detach=recipe.alpha == 0)
    net = supervise(model, TAPS, num_classes=classes, example=text[:LENGTH][None], companion=companion)
    objective = objective_of(net, recipe)
    optimizer = torch.optim.AdamW(net.parameters(), lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.rate, recipe.steps, pct_start=0.1)
    begin = time.perf_counter()
    for _ in range(recipe.steps):
        starts = torch.randint(0, len(text) - LENGTH - 1, (BATCH, 1))
        ids = text[starts + torch.arange(LENGTH + 1)]
        if recipe.alpha:
            loss = objective(net(ids[:, :-1]), ids[:, 1:]).total
        else:
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return net.eval(), time.perf_counter() - begin


@torch.no_grad()
def scores_by_layer(net: DeeplySupervised, inputs: Tensor) -> dict[str, Tensor]:
    """Return layer -> log-probabilities [N,L,K] of the next character."""
    outputs = [net(batch) for batch in inputs.split(32)]
    by_layer = {name: torch.cat([out.companions[name] for out in outputs]) for name in net.taps}
    return {
        name: each.log_softmax(-1)
        for name, each in {**by_layer, "output": torch.cat([o.scores for o in outputs])}.items()
    }


def losses(net: DeeplySupervised, text: Tensor, count: int = 0) -> dict[str, float]:
    """Return layer -> mean cross-entropy per character, in nats."""
    inputs, after = windows(text, count)
    return {
        name: float(F.nll_loss(each.flatten(0, 1), after.flatten()))
        for name, each in scores_by_layer(net, inputs).items()
    }


def threshold_for(net: DeeplySupervised, text: Tensor) -> float:
    """Return the smallest probability above which leaving early agrees with the whole net often enough."""
    scores = scores_by_layer(net, windows(text, 100)[0])
    for threshold in [each / 100 for each in range(30, 100)]:
        if exits(scores, threshold)["agrees"] >= AGREE:
            return threshold
    return 1.0


def exits(scores: dict[str, Tensor], threshold: float) -> dict[str, Any]:
    """Return how often the first sure layer agrees with the output, and the mean number of blocks that run."""
    whole = scores["output"].argmax(-1)
    chosen, blocks = whole.clone(), torch.full_like(whole, BLOCKS)
    for place, name in reversed([*enumerate(name for name in scores if name != "output")]):
        sure, best = scores[name].exp().max(-1)
        chosen = torch.where(sure > threshold, best, chosen)
        blocks = torch.where(sure > threshold, place + 1, blocks)
    return {"agrees": float((chosen == whole).float().mean()), "blocks": float(blocks.float().mean())}


@torch.no_grad()
def generate(model: Gpt, prompt: Tensor, count: int, threshold: float) -> tuple[Tensor, float, float]:
    """Return characters, the mean number of blocks per character, and seconds; greedy, one at a time, with a cache.

    Where a character leaves early, the blocks above take their keys and values from its state at the exit (CALM).
    """
    past: list[list[Tensor]] = [[] for _ in model.blocks]
    ids, blocks = prompt, 0
    begin = 0.0
    for place in range(len(prompt), len(prompt) + count):
        first = place == len(prompt)
        new = ids if first else ids[-1:]
        x = (model.characters(new) + model.places.weight[place - len(new) : place])[None]
        scores = torch.empty(0)
        for depth, block in enumerate(model.blocks):
            x = block(x, past[depth])
            if threshold < 1 and depth < BLOCKS - 1:
                scores = model.unembed(model.norm(x[0, -1]))
                if not first and scores.softmax(0).max() > threshold:
                    for above in range(depth + 1, BLOCKS):
                        grown(past[above], *model.blocks[above].keys_and_values(x)[1:])
                    break
        else:
            depth, scores = BLOCKS - 1, model.unembed(model.norm(x[0, -1]))
        if first:
            begin = time.perf_counter()
        blocks += 0 if first else depth + 1
        ids = torch.cat([ids, scores.argmax()[None]])
    return ids[len(prompt) :], blocks / (count - 1), time.perf_counter() - begin


def generation(net: DeeplySupervised, text: Tensor, threshold: float) -> dict[str, float]:
    """Return speed with and without leaving early, interleaved, from prompts of the test text."""
    prompts = windows(text, 24)[0][:, :16]
    ratios, agree, blocks = [], [], []
    for prompt in prompts:
        whole, _, slow = generate(net.trunk, prompt, 48, 1.0)
        early, used, fast = generate(net.trunk, prompt, 48, threshold)
        ratios.append(slow / fast)
        agree.append(float((whole == early).float().mean()))
        blocks.append(used)
    return {"speedup": float(torch.tensor(ratios).median()), "blocks": mean(blocks), "same_characters": mean(agree)}


def pilot(out: Path) -> None:
    """Try the rates without companions, then alphas and schedules at the best rate; one seed, validation text."""
    parts, alphabet = read_text()
    rows: list[dict[str, Any]] = []

    def measure(recipe: Recipe) -> float:
        net, seconds = train(recipe, 100, parts["train"], len(alphabet))
        found = losses(net, parts["validation"])
        rows.append({**asdict(recipe), "validation": found, "seconds": seconds})
        out.write_text(json.dumps(rows, indent=1) + "\n")
        print(recipe, {name: round(each, 4) for name, each in found.items()}, f"{seconds:.0f} s", flush=True)  # noqa: T201
        return found["output"]

    best = min(RATES, key=lambda rate: measure(Recipe(rate=rate)))
    for alpha, schedule in ((0.3, "linear"), (0.3, "constant"), (0.1, "constant")):
        measure(Recipe(rate=best, alpha=alpha, rising=True, schedule=schedule))


def record(out: Path, plain: Recipe, others: dict[str, Recipe]) -> None:
    """Train 5 seeds of each recipe and write what they do on the test text."""
    parts, alphabet = read_text()
    runs: list[dict[str, Any]] = []
    for seed in range(5):
        for name, recipe in {"without": plain, **others}.items():
            net, seconds = train(recipe, seed, parts["train"], len(alphabet))
            threshold = threshold_for(net, parts["validation"])
            run = {"name": name, "seed": seed, "loss": losses(net, parts["test"]), "seconds": seconds,
                   "threshold": threshold,
                   "exits": exits(scores_by_layer(net, windows(parts["test"], 100)[0]), threshold),
                   "generation": generation(net, parts["test"], threshold)}  # fmt: skip
            runs.append(run)
            recipes = {each: asdict(given) for each, given in {"without": plain, **others}.items()}
            sizes = {part: len(text) for part, text in parts.items()}
            done = {
                "recipes": recipes,
                "summary": summary(runs),
                "runs": runs,
                "characters": sizes,
                "model": {"blocks": BLOCKS, "width": WIDTH, "context": LENGTH, "batch": BATCH, "taps": TAPS},
                "agreement_wanted": AGREE,
                "environment": environment_now() | {"threads": torch.get_num_threads(), "busy": True},
            }
            out.write_text(json.dumps(done, indent=1) + "\n")
            print(name, seed, run["loss"], run["exits"], run["generation"], f"{seconds:.0f} s", flush=True)  # noqa: T201


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return per recipe the mean and deviation over seeds, and the paired difference of the output's loss."""
    found: dict[str, Any] = {}
    plain = {run["seed"]: run["loss"]["output"] for run in runs if run["name"] == "without"}
    for name in dict.fromkeys(run["name"] for run in runs):
        own = [run for run in runs if run["name"] == name]
        perplexity = {layer: [math.exp(run["loss"][layer]) for run in own] for layer in own[0]["loss"]}
        found[name] = {
            "perplexity": {layer: [mean(each), spread(each)] for layer, each in perplexity.items()},
            "seconds": mean(run["seconds"] for run in own),
            "exits": {key: mean(run["exits"][key] for run in own) for key in ("agrees", "blocks")},
            "generation": {key: mean(run["generation"][key] for run in own) for key in own[0]["generation"]},
        }
        if name != "without":
            each = [run["loss"]["output"] - plain[run["seed"]] for run in own]
            found[name]["loss_minus_without"] = [mean(each), spread(each)]
    return found


def spread(values: list[float]) -> float:
    """Return the standard deviation, 0 of a single value."""
    return stdev(values) if len(values) > 1 else 0.0


def main() -> None:
    """Run the pilot or the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["pilot", "record"])
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "pilot":
        pilot(given.out)
    else:
        record(given.out, PLAIN, WITH)


PLAIN = Recipe()
WITH = {
    "with": Recipe(alpha=0.3, rising=True),
    "with, to the end": Recipe(alpha=0.3, rising=True, schedule="constant"),
}
"""As the pilot found them: validation loss 1.980 and 1.986, without companions 1.989."""

if __name__ == "__main__":
    main()
