// Strokes or a picture -> the pixels that the net sees, Float32Array [C,H,W] with values 0 to 255.
"use strict";

const SUPERSAMPLED = 4;
const MOST_FILE = 64e6; // bytes
const MOST_SIDE = 16384;
const WORKING_SIDE = 512; // what a large picture is scaled to first

function makeCanvas(width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  return canvas;
}

const pen2d = (canvas) => canvas.getContext("2d", { willReadFrequently: true });

/** Draw strokes, lists of points [x, y], with round ends; a stroke of one point is a dot. */
function drawStrokes(context, strokes, width, colour) {
  Object.assign(context, { lineCap: "round", lineJoin: "round", lineWidth: width, strokeStyle: colour });
  for (const stroke of strokes) {
    context.beginPath();
    context.moveTo(...stroke[0]);
    for (const point of stroke.length > 1 ? stroke.slice(1) : stroke) context.lineTo(...point);
    context.stroke();
  }
}

/** Return the grey values of a canvas, averaged over squares of pixels. */
function averaged(canvas, side, factor) {
  const { data } = pen2d(canvas).getImageData(0, 0, canvas.width, canvas.height);
  const out = new Float32Array(side * side);
  for (let y = 0; y < side * factor; y++) {
    for (let x = 0; x < side * factor; x++) {
      out[Math.floor(y / factor) * side + Math.floor(x / factor)] += data[4 * (y * side * factor + x)];
    }
  }
  return out.map((sum) => Math.round(sum / (factor * factor)));
}

/** Return how far the centre of the grey values lies from the centre of the image, in pixels. */
function offCentre(pixels, side) {
  let [sum, across, down] = [0, 0, 0];
  pixels.forEach((value, place) => {
    sum += value;
    across += value * ((place % side) + 0.5);
    down += value * (Math.floor(place / side) + 0.5);
  });
  return sum ? [across / sum - side / 2, down / sum - side / 2] : [0, 0];
}

/**
 * Put something into MNIST's frame: scaled into a box of 20 of 28 pixels, its centre of mass in the middle.
 * paint: draws it on a context, its box's middle at (0, 0).
 */
function centred(paint, side) {
  const canvas = makeCanvas(side * SUPERSAMPLED, side * SUPERSAMPLED);
  const context = pen2d(canvas);
  let [dx, dy, pixels] = [0, 0, null];
  for (let round = 0; round < 2; round++) {
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = "#000";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.setTransform(SUPERSAMPLED, 0, 0, SUPERSAMPLED, (side / 2 - dx) * SUPERSAMPLED, (side / 2 - dy) * SUPERSAMPLED);
    paint(context);
    pixels = averaged(canvas, side, SUPERSAMPLED);
    if (round === 0) [dx, dy] = offCentre(pixels, side);
  }
  return pixels;
}

/** Return the box around points: its middle and its longer side. */
function boxOf(points) {
  const [xs, ys] = [points.map((point) => point[0]), points.map((point) => point[1])];
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const [top, bottom] = [Math.min(...ys), Math.max(...ys)];
  return { middle: [(left + right) / 2, (top + bottom) / 2], extent: Math.max(right - left, bottom - top) };
}

/**
 * Return strokes as the net sees them. The pen gets a width like that of the digits in MNIST, however large one draws.
 * unit: the side of the canvas in the units of the points; pen: the width of the pen in the same units.
 */
function framedStrokes(strokes, pen, side, unit) {
  const { middle, extent } = boxOf(strokes.flat());
  const [box, scale] = [(20 * side) / 28, side / 28];
  const longer = Math.max(extent, unit * 0.08); // a dot stays a dot
  const width = Math.min(Math.max((pen * box) / longer, 1.9 * scale), 3 * scale);
  const factor = (box - width) / longer;
  const moved = strokes.map((stroke) => stroke.map(([x, y]) => [(x - middle[0]) * factor, (y - middle[1]) * factor]));
  return centred((context) => drawStrokes(context, moved, width, "#fff"), side);
}

/** Return a picture as RGBA pixels of at most `most` pixels a side, on white. */
function pixelsOf(picture, most) {
  const factor = Math.min(1, most / Math.max(picture.width, picture.height));
  const canvas = makeCanvas(Math.max(1, Math.round(picture.width * factor)), Math.max(1, Math.round(picture.height * factor)));
  const context = pen2d(canvas);
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  return { canvas, data: context.getImageData(0, 0, canvas.width, canvas.height).data };
}

/** Return the values [C,H,W] of a canvas that has the net's size. */
function channelsOf(data, [channels, height, width]) {
  const out = new Float32Array(channels * height * width);
  for (let place = 0; place < height * width; place++) {
    const [r, g, b] = [data[4 * place], data[4 * place + 1], data[4 * place + 2]];
    if (channels === 1) out[place] = r === g && g === b ? r : Math.round(0.299 * r + 0.587 * g + 0.114 * b);
    else [r, g, b].forEach((value, channel) => { out[channel * height * width + place] = value; });
  }
  return out;
}

/** Return a picture as the net sees it: scaled to its size, or, of something drawn, put into MNIST's frame. */
function framedPicture(picture, shape, ink) {
  const [, height, width] = shape;
  if (picture.width === width && picture.height === height) return channelsOf(pixelsOf(picture, MOST_SIDE).data, shape);
  const { canvas, data } = pixelsOf(picture, WORKING_SIDE);
  if (!ink) {
    const exact = makeCanvas(width, height);
    pen2d(exact).imageSmoothingQuality = "high";
    pen2d(exact).drawImage(canvas, 0, 0, width, height);
    return channelsOf(pen2d(exact).getImageData(0, 0, width, height).data, shape);
  }
  return framedInk(canvas, data, width);
}

/** Return what is drawn or written on a picture, bright on black, in MNIST's frame. */
function framedInk(canvas, data, side) {
  const [wide, high] = [canvas.width, canvas.height];
  const grey = channelsOf(data, [1, high, wide]);
  const border = grey.filter((_, place) => {
    const [x, y] = [place % wide, Math.floor(place / wide)];
    return x === 0 || y === 0 || x === wide - 1 || y === high - 1;
  }).sort();
  const ground = border[border.length >> 1]; // the median
  const away = grey.map((value) => Math.abs(value - ground));
  const most = away.reduce((a, b) => Math.max(a, b), 0);
  if (most < 16) return new Float32Array(side * side); // one colour: nothing is drawn on it
  const ink = makeCanvas(wide, high);
  const image = pen2d(ink).createImageData(wide, high);
  const points = [];
  away.forEach((value, place) => {
    const share = Math.min(1, Math.max(0, (value / most - 0.25) / 0.5)); // paper is uneven: faint is ground
    image.data.set([255 * share, 255 * share, 255 * share, 255], 4 * place);
    if (share > 0.5) points.push([place % wide, Math.floor(place / wide)]);
  });
  pen2d(ink).putImageData(image, 0, 0);
  const reached = points.reduce(
    ([l, r, t, b], [x, y]) => [Math.min(l, x), Math.max(r, x), Math.min(t, y), Math.max(b, y)], [wide, 0, high, 0]);
  const [left, right, top, bottom] = reached;
  const factor = (20 * side) / 28 / (Math.max(right - left, bottom - top) + 1);
  return centred((context) => {
    context.imageSmoothingQuality = "high";
    context.drawImage(ink, left, top, right - left + 1, bottom - top + 1,
      ((left - right - 1) / 2) * factor, ((top - bottom - 1) / 2) * factor, (right - left + 1) * factor, (bottom - top + 1) * factor);
  }, side);
}

/** Return the picture in a file; one line says what is wrong with a file that holds none. */
async function pictureIn(file) {
  const name = file.name || "what you gave";
  if (file.size > MOST_FILE) throw new Error(`${name} has ${Math.round(file.size / 1e6)} MB; expected at most 64 MB: make it smaller.`);
  let picture;
  try {
    picture = await createImageBitmap(file);
  } catch {
    throw new Error(`${name} is not an image that this browser can read; give a PNG, JPEG, GIF or WebP file.`);
  }
  if (Math.max(picture.width, picture.height) > MOST_SIDE) {
    throw new Error(`${name} has ${picture.width} × ${picture.height} pixels; expected at most ${MOST_SIDE} a side: make it smaller.`);
  }
  return picture;
}
