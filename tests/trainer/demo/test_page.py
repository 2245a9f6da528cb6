"""The glass box in a real browser: the same scores as PyTorch, and everything that a person can do with it."""

import base64
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from deepsup.trainer.config import Config
from deepsup.trainer.demo import write_demo
from deepsup.trainer.demo._browser_graph import operators
from deepsup.trainer.demo._demo_nets import demo_net
from deepsup.trainer.demo._demo_page import MOST_OF_BARS, rendered
from deepsup.trainer.preprocess import to_tensor
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._run_data import data_of
from deepsup.trainer.runs._train import train

pytestmark = pytest.mark.slow  # test_interpreter.py has the arithmetic, test_demo_verb.py the pages

STROKES = json.loads((Path(__file__).parent / "strokes.json").read_text())
COMPARED = 200

# the smallest contrast of a text with the colour behind it, after WCAG; large or bold texts may have less
CONTRAST = """() => {
    const channel = value => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const rgb = text => text.match(/[0-9.]+/g).map(Number);
    const ground = element => {
        for (let each = element; each; each = each.parentElement) {
            const colour = rgb(getComputedStyle(each).backgroundColor);
            if (colour.length < 4 || colour[3] > 0.5) return colour;
        }
        return [255, 255, 255];
    };
    const texts = [...document.querySelectorAll('h1,h2,p,small,span,b,label,button,option')].filter(element =>
        element.childElementCount === 0 && element.textContent.trim() && element.getBoundingClientRect().width > 1
        && !element.closest('.live,.invite'));
    return Math.min(...texts.map(element => {
        const [a, b] = [light(rgb(getComputedStyle(element).color)), light(ground(element))];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    })); }"""
UNNAMED = """() => [...document.querySelectorAll('button, input, select, canvas, [role=listbox], [tabindex="0"]')]
    .filter(element => !(element.getAttribute('aria-label') || element.getAttribute('aria-labelledby')
        || element.labels?.length || element.textContent.trim()))
    .map(element => element.outerHTML.slice(0, 80))"""

CUT_OFF = """() => [...document.querySelectorAll('.tags')].filter(row => row.scrollWidth > row.clientWidth
    || row.scrollHeight > row.clientHeight).map(row => row.textContent)"""


class Opened:
    """A page that notes what it must not do: say anything on the console, or ask for anything."""

    def __init__(self, page: Any, path: Path) -> None:
        self.page = page
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", lambda dialog: self.said.append(dialog.message))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(path.as_uri())
        self.until("window.glassBox && glassBox.shown().answers.length > 0")
        self.own = path.as_uri()

    def until(self, condition: str) -> None:
        """Wait until an expression is true; playwright's own way needs eval, which the page forbids."""
        end = time.monotonic() + 60
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, condition
            self.page.wait_for_timeout(20)

    def shown(self) -> dict[str, Any]:
        found: dict[str, Any] = self.page.evaluate("glassBox.shown()")
        return found

    def draw(self, digit: dict[str, Any], every: int = 1) -> dict[str, Any]:
        """Play the strokes of a digit with the mouse; ``every``: take each so many-th point."""
        self.page.locator("#pen").evaluate(
            "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }", str(digit["pen"])
        )
        self.page.click("#clear")
        box = self.page.locator("#canvas").bounding_box()
        scale = box["width"] / 280
        for stroke in digit["strokes"]:
            points = [(box["x"] + x * scale, box["y"] + y * scale) for x, y in stroke]
            self.page.mouse.move(*points[0])
            self.page.mouse.down()
            for point in (*points[1::every], points[-1]):
                self.page.mouse.move(*point)
            self.page.mouse.up()
        return self.shown()

    def drop(self, path: Path) -> None:
        """Drop a file on the page."""
        transfer = self.page.evaluate_handle(
            """async ([bytes, name]) => { const files = new DataTransfer();
            files.items.add(new File([Uint8Array.from(atob(bytes), c => c.charCodeAt(0))], name)); return files; }""",
            [base64.b64encode(path.read_bytes()).decode(), path.name],
        )
        self.page.dispatch_event("body", "drop", {"dataTransfer": transfer})

    def check(self) -> None:
        assert self.said == []
        assert [url for url in self.asked if not url.startswith("data:")] == [self.own]


Open = Callable[..., Opened]


def data_in(page: Path) -> dict[str, Any]:
    """Return what a page knows."""
    text = page.read_text(encoding="utf-8").split('id="data">')[1].split("</script>")[0]
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Open a page; at the end, it must have said nothing and asked for nothing."""
    pages: list[Opened] = []

    def make(path: Path, **screen: Any) -> Opened:
        context = browser.new_context(**({"viewport": {"width": 1400, "height": 900}} | screen))
        pages.append(Opened(context.new_page(), path))
        return pages[-1]

    yield make
    for each in pages:
        each.check()
        each.page.context.close()


@pytest.fixture(scope="module")
def page_of_pair(pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_demo(*pair, out=tmp_path_factory.mktemp("page") / "a folder" / "demo.html")


def check_parity(opened: Opened, runs: list[RunFolder]) -> None:
    """Compare all scores of 200 test images with PyTorch's."""
    nets = [demo_net(runs[0])]
    nets += [demo_net(run, nets[0].net.taps) for run in runs[1:]]
    images = data_of(runs[0], nets[0].model.config).test.images[:COMPARED]
    assert len(images) == COMPARED
    theirs = opened.page.evaluate(
        "images => images.map(pixels => glassBox.scores(pixels))", [image.ravel().tolist() for image in images]
    )
    for index, each in enumerate(nets):
        with torch.no_grad():
            out = each.net(each.model.normalize(to_tensor(images)))
        for place, ours in enumerate([*out.companions.values(), out.scores]):
            scores = np.array([row[index][place] for row in theirs])
            np.testing.assert_allclose(scores, ours.numpy(), atol=1e-3, rtol=0)
            assert (scores.argmax(1) == ours.numpy().argmax(1)).all()


def test_the_scores_of_the_main_job_and_of_its_twin(opened: Open, pair: tuple[Path, Path], page_of_pair: Path) -> None:
    page = opened(page_of_pair)
    check_parity(page, [RunFolder(each) for each in pair])
    assert page.page.evaluate("Object.keys(Interpreter.OPERATORS).sort()") == sorted(operators())


def test_the_scores_of_a_network_of_the_users_own(opened: Open, own_resnet: Path, tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        from demo_resnet import OwnResNet
    finally:
        sys.path.pop(0)
    run = RunFolder(own_resnet, OwnResNet)
    page = opened(write_demo(run, out=tmp_path / "own.html"))
    check_parity(page, [run])
    # colour images are dropped or picked, not drawn
    assert page.page.locator("#undo").count() == 0
    picture = data_of(run, run.config).test.images[3].transpose(1, 2, 0)
    Image.fromarray(np.ascontiguousarray(picture)).save(tmp_path / "corner.png")
    page.drop(tmp_path / "corner.png")
    page.until("document.getElementById('truth').textContent === ''")
    pixels = np.array(page.shown()["pixels"]).reshape(3, 16, 16).transpose(1, 2, 0)
    assert (pixels == picture).all()


def test_the_scores_of_fast(opened: Open, tmp_path: Path) -> None:
    config = Config(network="fast", train_size=500, epochs=2, batch_size=50, lr=0.05, tensorboard=False)
    run = train(config, tmp_path / "fast")
    check_parity(opened(write_demo(run, out=tmp_path / "fast.html")), [run])


def test_drawing(opened: Open, page_of_pair: Path) -> None:
    """Some digits; what the net sees is what MNIST would make of them."""
    page = opened(page_of_pair)
    right = 0
    for digit in STROKES[::34]:
        shown = page.draw(digit, every=3)
        right += shown["answers"][0][-1] == str(digit["digit"])
        pixels = np.array(shown["pixels"]).reshape(28, 28)
        rows, columns = np.flatnonzero(pixels.max(1) > 64), np.flatnonzero(pixels.max(0) > 64)
        assert 18 <= max(np.ptp(rows), np.ptp(columns)) + 1 <= 21
        mass = np.indices((28, 28)).reshape(2, -1) @ pixels.ravel() / pixels.sum()
        assert np.abs(mass - 13.5).max() < 0.3
    assert right >= 2
    assert page.page.locator("[data-selected]").count() == 2
    assert page.page.locator("[aria-pressed=true]").all_text_contents() == ["conv1", "conv1"]
    live = page.page.locator("#live").text_content()
    assert live.startswith(f"With companions: {shown['answers'][0][-1]}")
    page.page.click("#undo")
    page.page.click("#clear")
    assert page.shown()["pixels"] is None
    assert page.page.locator("#live").text_content() == "Nothing is drawn."


def test_speed(opened: Open, page_of_pair: Path) -> None:
    """Both nets and all that the page shows of them take less than 50 ms per stroke, where nothing else runs."""
    found = opened(page_of_pair).page.evaluate("""() => {
        const values = new Float32Array(2000).fill(0.5);
        const multiplied = () => {
            const began = performance.now();
            for (let round = 0; round < 10_000; round++)
                for (let i = 0; i < 2000; i++) values[i] = values[i] * 0.5 + 0.1;
            return performance.now() - began;
        };
        const least = work => Math.min(...Array.from({length: 20}, work));
        return {reference: least(multiplied), ours: least(() => { show(); return state.milliseconds.all; })};
    }""")
    if found["reference"] > 25:  # 20 million multiplications take 20 ms otherwise
        pytest.skip(f"the machine is busy: a loop of 20 ms takes {found['reference']:.0f} ms")
    assert found["ours"] < 50


def test_a_hundred_digits(opened: Open, trained: Callable[..., Path], tmp_path: Path) -> None:
    """The net of the main job, as it is trained there, reads at least 85 of 100 digits as people draw them."""
    page = opened(write_demo(trained(30), out=tmp_path / "demo.html"))
    said = [page.draw(digit)["answers"][0][-1] for digit in STROKES]
    assert sum(answer == str(digit["digit"]) for answer, digit in zip(said, STROKES, strict=True)) >= 85


def test_touch(opened: Open, page_of_pair: Path) -> None:
    """A finger draws, and the page under it does not scroll."""
    page = opened(page_of_pair, viewport={"width": 400, "height": 800}, has_touch=True, is_mobile=True)
    page.page.click("#clear")
    assert page.page.locator("#canvas").evaluate("canvas => getComputedStyle(canvas).touchAction") == "none"
    box = page.page.locator("#canvas").bounding_box()
    session = page.page.context.new_cdp_session(page.page)
    for kind, part in (("touchStart", 0.1), ("touchMove", 0.5), ("touchMove", 0.9), ("touchEnd", None)):
        points = [] if part is None else [{"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] * part}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    assert page.page.evaluate("scrollY") == 0
    pixels = np.array(page.shown()["pixels"]).reshape(28, 28)
    assert pixels[5:23, 13:15].min() > 128  # a vertical line: a one
    assert pixels[:, :9].max() == 0


def test_keyboard(opened: Open, page_of_pair: Path) -> None:
    page = opened(page_of_pair)
    keys = page.page.keyboard
    page.page.focus("#canvas")
    keys.press("Escape")
    for _ in range(8):
        keys.press("ArrowUp")
    assert page.page.locator("#live").text_content() == "Pen up, 50 % across, 16 % down."
    keys.press("Space")
    assert page.page.locator("#live").text_content() == "Pen down, 50 % across, 16 % down."
    for _ in range(16):
        keys.press("ArrowDown")
    keys.press("Space")
    shown = page.shown()
    assert np.array(shown["pixels"]).reshape(28, 28)[6:22, 13:15].min() > 128
    assert shown["answers"][0][-1] in page.page.locator("#live").text_content()
    assert "early exit" in page.page.locator("#live").text_content()
    keys.press("Backspace")
    assert page.shown()["pixels"] is None
    # the strip is one stop of the Tab key; arrows go through it
    page.page.focus("#thumbs [tabindex='0']")
    keys.press("Home")
    keys.press("ArrowRight")
    page.until("glassBox.shown().pixels")
    chosen = page.page.locator("#thumbs [aria-selected=true]")
    assert chosen.count() == 1
    assert chosen.get_attribute("aria-label").startswith("Test image 2, a ")
    assert page.page.locator("#thumbs [tabindex='0']").count() == 1
    assert page.page.evaluate(UNNAMED) == []


def check_bars(opened: Opened, pair: tuple[Path, Path], epoch: int) -> None:
    """Compare the bars of an earlier epoch with PyTorch's: the worst one of a layer, on average over test images."""
    nets = [demo_net(RunFolder(pair[0]))]
    nets.append(demo_net(RunFolder(pair[1]), nets[0].net.taps))
    part = data_of(RunFolder(pair[0]), nets[0].model.config).test.images[:100]
    theirs = opened.page.evaluate(
        "images => images.map(pixels => glassBox.scores(pixels))", [image.ravel().tolist() for image in part]
    )
    for index, each in enumerate(nets):
        each.net.load_state_dict(each.epochs[epoch])
        with torch.no_grad():
            out = each.net(each.model.normalize(to_tensor(part)))
        for place, scores in enumerate([*out.companions.values(), out.scores]):
            shown = torch.tensor([row[index][place] for row in theirs])
            assert float((shown.softmax(1) - scores.softmax(1)).abs().amax(1).mean()) <= 1.5 * MOST_OF_BARS


def test_the_epochs(opened: Open, page_of_pair: Path, pair: tuple[Path, Path]) -> None:
    """Before training a net knows nothing; the slider shows it, and the last epoch again."""
    page = opened(page_of_pair)
    last = page.shown()
    assert last["epoch"] == 12
    assert page.page.locator("#epoch").get_attribute("max") == "2"
    page.page.focus("#epoch")
    page.page.keyboard.press("Home")
    page.until("glassBox.shown().epoch === 0")
    check_bars(page, pair, 0)
    assert page.page.locator("#epoch-name").text_content() == "before the first epoch"
    assert (
        float(
            page.page.locator(".net .layer:last-child .bar.top i").first.evaluate(
                "i => i.style.getPropertyValue('--p')"
            )
        )
        < 0.5
    )
    page.page.keyboard.press("End")
    page.until("glassBox.shown().epoch === 12")
    assert page.shown()["answers"] == last["answers"]


def test_the_maps(opened: Open, page_of_pair: Path, pair: tuple[Path, Path]) -> None:
    """What the maps say for a class adds up to the score, less the mean and the bias."""
    page = opened(page_of_pair)
    page.page.click("#thumbs button >> nth=4")
    page.page.click(".net >> nth=0 >> .layer >> nth=1 >> .name button")
    page.page.select_option("#class", "7")
    assert page.page.locator("#maps .net >> nth=0 >> .tile").count() == 32
    net = demo_net(RunFolder(pair[0])).net
    bias = net.head("conv2").classifier.bias.detach().numpy()
    found = page.page.evaluate("""() => { const judged = judgements[0];
        return {sum: evidence(judged, 1, 7).reduce((a, b) => a + b), scores: Array.from(judged.layers[1].scores)}; }""")
    plain = np.array(found["scores"]) - bias
    assert found["sum"] == pytest.approx(plain[7] - plain.mean(), abs=1e-2)
    lit = page.page.evaluate("""() => { const values = judgements[0].values.get('maps_1').data;
        const limit = threshold(values);
        return values.filter(value => value > limit).length / values.length; }""")
    assert lit == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_screens(opened: Open, page_of_pair: Path, width: int, scheme: str) -> None:
    page = opened(page_of_pair, viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.page.evaluate(CONTRAST) >= 4.5
    # both nets beside each other, layer by layer, at every width; nothing moves while one draws, and no note is cut off
    places = "[...document.querySelectorAll('.layer')].map(card => card.getBoundingClientRect().toJSON())"
    cards = page.page.evaluate(places)
    assert [card["top"] for card in cards[:4]] == [card["top"] for card in cards[4:]]
    assert all(first["right"] < second["left"] for first, second in zip(cards[:4], cards[4:], strict=True))
    page.page.click("#clear")
    assert [card["height"] for card in page.page.evaluate(places)] == [card["height"] for card in cards]
    for digit in STROKES[::25]:
        page.draw(digit, every=5)
        assert page.page.evaluate(CUT_OFF) == []
    dark = page.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 27)"
    assert dark is (scheme == "dark")


def test_images_of_every_kind(opened: Open, page_of_pair: Path, tmp_path: Path) -> None:
    page = opened(page_of_pair)
    fault = page.page.locator("#fault")
    # a photo of a seven: dark on light paper, 10,000 pixels wide
    photo = np.full((6000, 10000), 230, np.uint8)
    photo[1000:1300, 3000:5500] = 40
    for row in range(1000, 5000):
        photo[row, 5200 - (row - 1000) // 3 : 5500 - (row - 1000) // 3] = 40
    Image.fromarray(photo).save(tmp_path / "photo.png")
    page.page.click("#clear")
    page.drop(tmp_path / "photo.png")
    page.until("glassBox.shown().pixels")
    pixels = np.array(page.shown()["pixels"]).reshape(28, 28)
    assert pixels.max() > 200
    assert pixels[:3].max() == 0
    assert 19 <= np.ptp(np.flatnonzero(pixels.max(1) > 64)) + 1 <= 21
    # a digit of the test set is taken as it is
    digit = np.zeros((28, 28), np.uint8)
    digit[2:20, 3] = 255
    Image.fromarray(digit).save(tmp_path / "digit.png")
    page.drop(tmp_path / "digit.png")
    page.until("glassBox.shown().pixels[2 * 28 + 3] === 255")
    assert (np.array(page.shown()["pixels"]) == digit.ravel()).all()
    # what is no image is refused in one line
    for name, content in (("broken.png", b"\x89PNG\r\n\x1a\nnothing"), ("words.txt", b"hello"), ("empty.jpg", b"")):
        (tmp_path / name).write_bytes(content)
        page.drop(tmp_path / name)
        page.until(f"document.getElementById('fault').textContent.startsWith('{name}')")
        assert (
            fault.text_content()
            == f"{name} is not an image that this browser can read; give a PNG, JPEG, GIF or WebP file."
        )
        assert fault.is_visible()
    page.draw(STROKES[0], every=9)
    assert not fault.is_visible()
    page.page.set_input_files("#file", tmp_path / "digit.png")
    page.until("glassBox.shown().pixels[2 * 28 + 3] === 255")


def test_hostile_names(opened: Open, page_of_pair: Path, tmp_path: Path) -> None:
    data = data_in(page_of_pair)
    hostile = [
        "<img src=x onerror=alert(1)>",
        "</script><script>alert(2)</script>",
        "\u202ertl",
        "'\"&amp;",
        "{{ 7*7 }}",
        "a" * 200,
    ]
    data["classes"] = hostile + [str(n) for n in range(len(hostile), 10)]
    data["title"] = "</title><script>alert(3)</script>"
    data["nets"][0]["name"] = "<b>bold</b>"
    data["nets"][0]["layers"][0]["name"] = "<i>layer</i>"
    (tmp_path / "hostile.html").write_text(rendered(data), encoding="utf-8")
    page = opened(tmp_path / "hostile.html", viewport={"width": 400, "height": 800})
    options = page.page.locator("#class option").all_text_contents()
    assert options[1:7] == hostile
    assert "<i>layer</i>" in page.page.locator(".layer >> nth=0").text_content()
    assert page.page.locator("i i, .layer img, b b").count() == 0
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.page.title() == "The glass box: </title><script>alert(3)</script>"


def test_the_browser_runs_no_other_script(opened: Open, page_of_pair: Path, tmp_path: Path) -> None:
    text = page_of_pair.read_text(encoding="utf-8")
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text
    (tmp_path / "changed.html").write_text(
        text.replace("</body>", "<script>window.foreign = 1</script></body>"), encoding="utf-8"
    )
    page = opened(tmp_path / "changed.html")
    assert page.page.evaluate("window.foreign") is None
    assert len(page.said) == 1
    assert "Content Security Policy" in page.said.pop()


def test_size(page_of_pair: Path) -> None:
    """The page of the main job's net and its twin stays below 1 MB, with three epochs of each."""
    assert page_of_pair.stat().st_size < 1_000_000


def test_size_with_ten_epochs(trained: Callable[..., Path], tmp_path: Path) -> None:
    """The page of the main job's net stays below 1 MB with the ten epochs that ``make run`` keeps."""
    page = write_demo(trained(30, snapshots=10), out=tmp_path / "demo.html")
    assert len(data_in(page)["nets"][0]["epochs"]) == 10
    assert page.stat().st_size < 1_000_000
