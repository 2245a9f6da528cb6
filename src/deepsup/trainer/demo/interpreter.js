// A graph of ONNX operators and its weights -> a function from an image to named values. Nothing of the page is in here.
// A tensor is {shape, data}, row by row as in ONNX; numbers of every type are 32-bit floats.
"use strict";

const size = (shape) => shape.reduce((product, extent) => product * extent, 1);
const tensor = (shape, data) => ({ shape, data: data || new Float32Array(size(shape)) });
const numbers = (given) => (given ? Array.from(given.data) : undefined);

/** Return the row-major strides of a shape. */
function stridesOf(shape) {
  const strides = new Array(shape.length).fill(1);
  for (let axis = shape.length - 2; axis >= 0; axis--) strides[axis] = strides[axis + 1] * shape[axis + 1];
  return strides;
}

/** Return, for every place of `shape` in order, the offset that `strides` give it. */
function offsetsOf(shape, strides, start = 0) {
  let offsets = [start];
  shape.forEach((extent, axis) => {
    const next = new Array(offsets.length * extent);
    let place = 0;
    for (const offset of offsets) for (let i = 0; i < extent; i++) next[place++] = offset + i * strides[axis];
    offsets = next;
  });
  return offsets;
}

/** Return a tensor whose value at each place of `shape` is the one of `x` at the offset given by `strides`. */
function viewed(x, shape, strides, start = 0) {
  const offsets = offsetsOf(shape, strides, start);
  return tensor(shape, Float32Array.from(offsets, (offset) => x.data[offset]));
}

function broadcastShape(...tensors) {
  const rank = Math.max(...tensors.map((each) => each.shape.length));
  const extent = (each, axis) => each.shape[axis - rank + each.shape.length] ?? 1;
  return Array.from({ length: rank }, (_, axis) => {
    const extents = tensors.map((each) => extent(each, axis));
    return extents.find((each) => each !== 1) ?? 1;
  });
}

function expanded(x, shape) {
  if (x.shape.length === shape.length && x.shape.every((extent, axis) => extent === shape[axis])) return x;
  const missing = shape.length - x.shape.length;
  const own = stridesOf(x.shape);
  return viewed(x, shape, shape.map((_, axis) => (axis < missing || x.shape[axis - missing] === 1 ? 0 : own[axis - missing])));
}

const unary = (f) => (_, x) => tensor(x.shape, x.data.map(f));

/** Return an operator of two or more tensors, place by place. */
function elementwise(f) {
  const pair = (a, b) => {
    const shape = broadcastShape(a, b);
    const out = tensor(shape);
    const n = out.data.length;
    const left = a.data.length === 1 ? a : expanded(a, shape);
    const right = b.data.length === 1 ? b : expanded(b, shape);
    const [p, q] = [left.data, right.data];
    const [i, j] = [p.length === 1 ? 0 : 1, q.length === 1 ? 0 : 1];
    for (let place = 0; place < n; place++) out.data[place] = f(p[place * i], q[place * j]);
    return out;
  };
  return (_, ...given) => given.reduce(pair);
}

/** Return an operator that reduces axes, e.g. to their mean. */
function reduction(start, step, end = (sum) => sum) {
  return (at, x, axes) => {
    const rank = x.shape.length;
    const given = numbers(axes) ?? at.axes ?? [];
    if (!given.length && at.noop_with_empty_axes) return x;
    const reduced = new Set((given.length ? given : x.shape.map((_, axis) => axis)).map((axis) => (axis + rank) % rank));
    const [kept, gone] = [false, true].map((is) => x.shape.map((_, axis) => axis).filter((axis) => reduced.has(axis) === is));
    const strides = stridesOf(x.shape);
    const picked = (axes) => offsetsOf(axes.map((axis) => x.shape[axis]), axes.map((axis) => strides[axis]));
    const inner = picked(gone);
    const shape = (at.keepdims ?? 1) ? x.shape.map((extent, axis) => (reduced.has(axis) ? 1 : extent)) : kept.map((axis) => x.shape[axis]);
    return tensor(shape, Float32Array.from(picked(kept), (base) => {
      let sum = start;
      for (const offset of inner) sum = step(sum, x.data[base + offset]);
      return end(sum, inner.length);
    }));
  };
}

/** Return where the windows of a convolution or pooling lie: sizes, strides, the padding before, the output's size. */
function windows(at, x, kernel, ceil = false) {
  if (at.auto_pad && at.auto_pad !== "NOTSET" && at.auto_pad !== "VALID") throw new Error(`auto_pad ${at.auto_pad}`);
  const spatial = x.shape.slice(2);
  if (spatial.length > 2) throw new Error(`maps of ${spatial.length} dimensions`);
  const rank = spatial.length;
  const line = rank === 1; // a sequence is a map of one row
  const two = (values, filler) => (line ? [filler, ...values] : values);
  const pads = at.pads ?? new Array(2 * rank).fill(0);
  const found = {
    line,
    extent: two(spatial, 1),
    kernel: two(kernel, 1),
    strides: two(at.strides ?? new Array(rank).fill(1), 1),
    dilations: two(at.dilations ?? new Array(rank).fill(1), 1),
    before: two(pads.slice(0, rank), 0),
    after: two(pads.slice(rank), 0),
  };
  found.out = [0, 1].map((axis) => {
    const whole = found.extent[axis] + found.before[axis] + found.after[axis];
    const room = (whole - found.dilations[axis] * (found.kernel[axis] - 1) - 1) / found.strides[axis];
    const count = (ceil ? Math.ceil(room) : Math.floor(room)) + 1;
    const started = (count - 1) * found.strides[axis] < found.extent[axis] + found.before[axis];
    return ceil && !started ? count - 1 : count; // a window must start inside the map or its padding before
  });
  found.shape = (batch, channels) => [batch, channels, ...(line ? found.out.slice(1) : found.out)];
  return found;
}

/** Return the planes [channels, high, wide] of one image with zeros around them, and the sizes. */
function padded(x, image, w) {
  const channels = x.shape[1];
  const [height, width] = w.extent;
  const high = height + w.before[0] + w.after[0];
  const wide = width + w.before[1] + w.after[1];
  const start = image * channels * height * width;
  if (high === height && wide === width) {
    return { planes: x.data.subarray(start, start + channels * height * width), high, wide };
  }
  const planes = new Float32Array(channels * high * wide);
  for (let channel = 0; channel < channels; channel++) {
    for (let row = 0; row < height; row++) {
      const from = start + (channel * height + row) * width;
      planes.set(x.data.subarray(from, from + width), (channel * high + row + w.before[0]) * wide + w.before[1]);
    }
  }
  return { planes, high, wide };
}

/**
 * The convolution of one output channel at stride 1: the whole plane shifted by each tap, times its weight, four taps at
 * a time. The plane is as wide as the padded input; the columns at its right that mean nothing are dropped later.
 */
function shifted(planes, offsets, weights, first, bias, plane) {
  plane.fill(bias);
  const taps = offsets.length;
  const length = plane.length;
  let tap = 0;
  for (; tap + 4 <= taps; tap += 4) {
    const [a, b, c, d] = [offsets[tap], offsets[tap + 1], offsets[tap + 2], offsets[tap + 3]];
    const at = first + tap;
    const [p, q, r, s] = [weights[at], weights[at + 1], weights[at + 2], weights[at + 3]];
    for (let i = 0; i < length; i++) {
      plane[i] += p * planes[a + i] + q * planes[b + i] + r * planes[c + i] + s * planes[d + i];
    }
  }
  for (; tap < taps; tap++) {
    const [a, p] = [offsets[tap], weights[first + tap]];
    for (let i = 0; i < length; i++) plane[i] += p * planes[a + i];
  }
}

function convolution(at, x, weight, bias) {
  const groups = at.group ?? 1;
  const [filters, depth, ...kernel] = weight.shape;
  const w = windows(at, x, kernel);
  const out = tensor(w.shape(x.shape[0], filters));
  const [rows, columns] = w.out;
  const dense = w.strides[0] === 1 && w.strides[1] === 1;
  for (let image = 0; image < x.shape[0]; image++) {
    const { planes, high, wide } = padded(x, image, w);
    const plane = new Float32Array((rows - 1) * wide + columns);
    for (let filter = 0; filter < filters; filter++) {
      const channel = Math.floor(filter / (filters / groups)) * depth;
      const offsets = Int32Array.from(offsetsOf(
        [depth, ...w.kernel], [high * wide, w.dilations[0] * wide, w.dilations[1]], channel * high * wide,
      ));
      const base = bias ? bias.data[filter] : 0;
      const first = filter * offsets.length;
      let place = (image * filters + filter) * rows * columns;
      if (dense) {
        shifted(planes, offsets, weight.data, first, base, plane);
        for (let row = 0; row < rows; row++, place += columns) {
          out.data.set(plane.subarray(row * wide, row * wide + columns), place);
        }
        continue;
      }
      for (let row = 0; row < rows; row++) {
        for (let column = 0; column < columns; column++, place++) {
          const corner = row * w.strides[0] * wide + column * w.strides[1];
          let sum = base;
          for (let tap = 0; tap < offsets.length; tap++) sum += weight.data[first + tap] * planes[corner + offsets[tap]];
          out.data[place] = sum;
        }
      }
    }
  }
  return out;
}

/** Take a pooling over the first of three axes, as response normalization needs it, for one over maps. */
function flatPooling(pool) {
  return (at, x) => {
    if (x.shape.length !== 5) return pool(at, x);
    const [depth, ...others] = at.kernel_shape;
    const moved = [...(at.pads ?? []).filter((_, i) => i % 3), ...(at.strides ?? []).slice(1).map((stride) => stride - 1)];
    if (others.some((side) => side !== 1) || moved.some((n) => n !== 0)) throw new Error("pooling over three axes");
    const of = (values, filler) => (values ? [values[0], filler] : undefined);
    const pads = at.pads && [at.pads[0], 0, at.pads[3], 0];
    const flat = { ...at, kernel_shape: [depth, 1], pads, strides: of(at.strides, 1), dilations: of(at.dilations, 1) };
    const out = pool(flat, tensor([...x.shape.slice(0, 3), x.shape[3] * x.shape[4]], x.data));
    return tensor([...out.shape.slice(0, 3), ...x.shape.slice(3)], out.data);
  };
}

/** Return an operator that pools windows; `end` gets the sum or maximum, and how many places count. */
function pooling(start, step, end) {
  return (at, x) => {
    const w = windows(at, x, at.kernel_shape, Boolean(at.ceil_mode));
    const planes = x.shape[0] * x.shape[1];
    const [height, width] = w.extent;
    const out = tensor(w.shape(x.shape[0], x.shape[1]));
    let place = 0;
    for (let plane = 0; plane < planes; plane++) {
      for (let row = 0; row < w.out[0]; row++) {
        for (let column = 0; column < w.out[1]; column++) {
          let [value, inside, around] = [start, 0, 0];
          for (let i = 0; i < w.kernel[0]; i++) {
            const y = row * w.strides[0] - w.before[0] + i * w.dilations[0];
            if (y >= height + w.after[0]) break;
            for (let j = 0; j < w.kernel[1]; j++) {
              const z = column * w.strides[1] - w.before[1] + j * w.dilations[1];
              if (z >= width + w.after[1]) break;
              around++;
              if (y < 0 || z < 0 || y >= height || z >= width) continue;
              inside++;
              value = step(value, x.data[(plane * height + y) * width + z]);
            }
          }
          out.data[place++] = end(value, at.count_include_pad ? around : inside);
        }
      }
    }
    return out;
  };
}

/** The product of the last two axes, [..., n, m] x [..., m, k]. */
function product(a, b) {
  const [n, m] = a.shape.length === 1 ? [1, a.shape[0]] : a.shape.slice(-2);
  const k = b.shape.length === 1 ? 1 : b.shape.at(-1);
  const batch = broadcastShape({ shape: a.shape.slice(0, -2) }, { shape: b.shape.slice(0, -2) });
  const left = expanded(a, a.shape.length === 1 ? [m] : [...batch, n, m]);
  const right = expanded(b, b.shape.length === 1 ? [m] : [...batch, m, k]);
  const out = tensor([...batch, ...(a.shape.length === 1 ? [] : [n]), ...(b.shape.length === 1 ? [] : [k])]);
  for (let page = 0; page < size(batch); page++) {
    for (let row = 0; row < n; row++) {
      for (let column = 0; column < k; column++) {
        let sum = 0;
        const [from, other] = [page * n * m + row * m, page * m * k + column];
        for (let i = 0; i < m; i++) sum += left.data[from + i] * right.data[other + i * k];
        out.data[page * n * k + row * k + column] = sum;
      }
    }
  }
  return out;
}

function gemm(at, a, b, c) {
  const [alpha, beta] = [at.alpha ?? 1, at.beta ?? 1];
  const [n, m] = at.transA ? [a.shape[1], a.shape[0]] : a.shape;
  const k = at.transB ? b.shape[0] : b.shape[1];
  const [rowA, stepA] = at.transA ? [1, n] : [m, 1];
  const [rowB, stepB] = at.transB ? [m, 1] : [1, k];
  const added = c ? expanded(c, [n, k]).data : null;
  const out = tensor([n, k]);
  for (let row = 0; row < n; row++) {
    for (let column = 0; column < k; column++) {
      let sum = 0;
      for (let i = 0; i < m; i++) sum += a.data[row * rowA + i * stepA] * b.data[column * rowB + i * stepB];
      out.data[row * k + column] = alpha * sum + (added ? beta * added[row * k + column] : 0);
    }
  }
  return out;
}

/** Subtract a mean and divide by a deviation, over `inner` places that follow each other. */
function normalized(x, inner, epsilon, scale, shift) {
  const out = tensor(x.shape);
  for (let start = 0; start < x.data.length; start += inner) {
    let [sum, squares] = [0, 0];
    for (let i = 0; i < inner; i++) sum += x.data[start + i];
    const mean = sum / inner;
    for (let i = 0; i < inner; i++) squares += (x.data[start + i] - mean) ** 2;
    const factor = 1 / Math.sqrt(squares / inner + epsilon);
    for (let i = 0; i < inner; i++) {
      out.data[start + i] = (x.data[start + i] - mean) * factor * scale(start + i) + shift(start + i);
    }
  }
  return out;
}

/** Return one factor and one summand per channel, applied to a map [B,C,...]. */
function byChannel(x, factor, summand) {
  const inner = size(x.shape.slice(2));
  const out = tensor(x.shape);
  for (let place = 0; place < out.data.length; place++) {
    const channel = Math.floor(place / inner) % x.shape[1];
    out.data[place] = x.data[place] * factor[channel] + summand[channel];
  }
  return out;
}

function softmax(x, axis, end) {
  const inner = size(x.shape.slice(axis + 1));
  const extent = x.shape[axis];
  const out = tensor(x.shape);
  for (let start = 0; start < x.data.length; start++) {
    if (Math.floor(start / inner) % extent) continue;
    let [highest, sum] = [-Infinity, 0];
    for (let i = 0; i < extent; i++) highest = Math.max(highest, x.data[start + i * inner]);
    for (let i = 0; i < extent; i++) sum += Math.exp(x.data[start + i * inner] - highest);
    for (let i = 0; i < extent; i++) out.data[start + i * inner] = end(x.data[start + i * inner] - highest, sum);
  }
  return out;
}

/** The error function, by Abramowitz and Stegun 7.1.26: right to 1.5e-7. */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return Math.sign(x) * (1 - series * Math.exp(-x * x));
}

function reshaped(at, x, shape) {
  const wanted = numbers(shape).map((extent, axis) => (extent === 0 && !at.allowzero ? x.shape[axis] : extent));
  const known = wanted.filter((extent) => extent >= 0).reduce((all, extent) => all * extent, 1);
  return tensor(wanted.map((extent) => (extent < 0 ? x.data.length / known : extent)), x.data);
}

function concatenated(at, ...given) {
  const axis = (at.axis + given[0].shape.length) % given[0].shape.length;
  const outer = size(given[0].shape.slice(0, axis));
  const shape = given[0].shape.slice();
  shape[axis] = given.reduce((sum, each) => sum + each.shape[axis], 0);
  const out = tensor(shape);
  let place = 0;
  for (let block = 0; block < outer; block++) {
    for (const each of given) {
      const length = each.data.length / outer;
      out.data.set(each.data.subarray(block * length, (block + 1) * length), place);
      place += length;
    }
  }
  return out;
}

function sliced(x, starts, ends, axes, steps) {
  const shape = x.shape.slice();
  const strides = stridesOf(x.shape);
  let start = 0;
  starts.forEach((from, index) => {
    const axis = ((axes ? axes[index] : index) + shape.length) % shape.length;
    const [step, extent] = [steps ? steps[index] : 1, x.shape[axis]];
    const within = (end, least, most) => Math.min(Math.max(end < 0 ? end + extent : end, least), most);
    const begin = step > 0 ? within(from, 0, extent) : within(from, 0, extent - 1);
    const stop = step > 0 ? within(ends[index], 0, extent) : within(ends[index], -1, extent - 1);
    shape[axis] = Math.max(0, Math.ceil((stop - begin) / step));
    start += begin * strides[axis];
    strides[axis] *= step;
  });
  return viewed(x, shape, strides, start);
}

function split(at, x, sizes) {
  const axis = ((at.axis ?? 0) + x.shape.length) % x.shape.length;
  const extent = x.shape[axis];
  const count = at.num_outputs ?? at.outputs;
  const parts = numbers(sizes) ?? at.split ?? Array.from({ length: count }, (_, i) =>
    Math.min(Math.ceil(extent / count), extent - i * Math.ceil(extent / count)));
  let start = 0;
  return parts.map((part) => sliced(x, [start], [(start += part)], [axis]));
}

function gathered(at, x, indices) {
  const axis = ((at.axis ?? 0) + x.shape.length) % x.shape.length;
  const [outer, inner] = [size(x.shape.slice(0, axis)), size(x.shape.slice(axis + 1))];
  const out = tensor([...x.shape.slice(0, axis), ...indices.shape, ...x.shape.slice(axis + 1)]);
  let place = 0;
  for (let block = 0; block < outer; block++) {
    for (const index of indices.data) {
      const from = (block * x.shape[axis] + (index < 0 ? index + x.shape[axis] : index)) * inner;
      out.data.set(x.data.subarray(from, from + inner), place);
      place += inner;
    }
  }
  return out;
}

function gatheredAt(at, x, indices) {
  if (at.batch_dims) throw new Error("GatherND with batch_dims");
  const depth = indices.shape.at(-1);
  const strides = stridesOf(x.shape);
  const inner = size(x.shape.slice(depth));
  const out = tensor([...indices.shape.slice(0, -1), ...x.shape.slice(depth)]);
  for (let row = 0; row * depth < indices.data.length; row++) {
    let from = 0;
    for (let axis = 0; axis < depth; axis++) {
      const index = indices.data[row * depth + axis];
      from += (index < 0 ? index + x.shape[axis] : index) * strides[axis];
    }
    out.data.set(x.data.subarray(from, from + inner), row * inner);
  }
  return out;
}

function paddedWith(at, x, pads, value, axes) {
  if (at.mode && at.mode !== "constant") throw new Error(`Pad with mode ${at.mode}`);
  const rank = x.shape.length;
  const [before, after] = [new Array(rank).fill(0), new Array(rank).fill(0)];
  const named = numbers(axes) ?? x.shape.map((_, axis) => axis);
  const given = numbers(pads) ?? at.pads;
  named.forEach((axis, index) => {
    before[(axis + rank) % rank] = given[index];
    after[(axis + rank) % rank] = given[index + named.length];
  });
  // a negative padding crops
  const cropped = sliced(x, before.map((n) => Math.max(0, -n)), x.shape.map((extent, axis) => extent - Math.max(0, -after[axis])));
  const out = tensor(cropped.shape.map((extent, axis) => extent + Math.max(0, before[axis]) + Math.max(0, after[axis])));
  out.data.fill(value && value.data.length ? value.data[0] : 0);
  const strides = stridesOf(out.shape);
  const start = strides.reduce((sum, stride, axis) => sum + stride * Math.max(0, before[axis]), 0);
  offsetsOf(cropped.shape, strides, start).forEach((offset, place) => { out.data[offset] = cropped.data[place]; });
  return out;
}

const squeezed = (at, x, axes) => {
  const given = (numbers(axes) ?? at.axes)?.map((axis) => (axis + x.shape.length) % x.shape.length);
  return tensor(x.shape.filter((extent, axis) => (given ? !given.includes(axis) : extent !== 1)), x.data);
};

const unsqueezed = (at, x, axes) => {
  const given = numbers(axes) ?? at.axes;
  const rank = x.shape.length + given.length;
  const shape = x.shape.slice();
  given.map((axis) => (axis + rank) % rank).sort((a, b) => a - b).forEach((axis) => shape.splice(axis, 0, 1));
  return tensor(shape, x.data);
};

const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const clipped = (x, low, high) => Math.min(Math.max(x, low), high);
const spread = (x) => x.shape.slice(2).map((_, axis) => axis + 2);

/** Each operator gets its attributes and its inputs; it returns a tensor, or several. */
const OPERATORS = {
  Abs: unary(Math.abs),
  Add: elementwise((a, b) => a + b),
  And: elementwise((a, b) => a && b),
  AveragePool: flatPooling(pooling(0, (sum, value) => sum + value, (sum, count) => sum / count)),
  BatchNormalization: (at, x, scale, shift, mean, variance) => {
    const factor = scale.data.map((each, i) => each / Math.sqrt(variance.data[i] + (at.epsilon ?? 1e-5)));
    return byChannel(x, factor, shift.data.map((each, i) => each - mean.data[i] * factor[i]));
  },
  Cast: (at, x) => ([2, 3, 5, 6, 7, 12, 13].includes(at.to) ? tensor(x.shape, x.data.map(Math.trunc)) : x),
  Clip: (at, x, low, high) => {
    const [least, most] = [low?.data[0] ?? at.min ?? -Infinity, high?.data[0] ?? at.max ?? Infinity];
    return tensor(x.shape, x.data.map((value) => clipped(value, least, most)));
  },
  Concat: concatenated,
  Constant: (at) => tensor(at.value.shape, Float32Array.from(at.value.data)),
  Conv: convolution,
  Div: elementwise((a, b) => a / b),
  Dropout: (_, x) => x,
  Elu: (at, x) => tensor(x.shape, x.data.map((value) => (value < 0 ? (at.alpha ?? 1) * Math.expm1(value) : value))),
  Equal: elementwise((a, b) => a === b),
  Erf: unary(erf),
  Exp: unary(Math.exp),
  Expand: (_, x, shape) => expanded(x, broadcastShape(x, { shape: numbers(shape) })),
  Flatten: (at, x) => {
    const axis = ((at.axis ?? 1) + x.shape.length) % (x.shape.length || 1);
    const rows = size(x.shape.slice(0, axis));
    return tensor([rows, x.data.length / rows], x.data);
  },
  Gather: gathered,
  GatherND: gatheredAt,
  Gelu: (at, x) => tensor(x.shape, x.data.map(at.approximate === "tanh"
    ? (value) => 0.5 * value * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (value + 0.044715 * value ** 3)))
    : (value) => 0.5 * value * (1 + erf(value * Math.SQRT1_2)))),
  Gemm: gemm,
  GlobalAveragePool: (_, x) => OPERATORS.ReduceMean({ axes: spread(x) }, x),
  GlobalMaxPool: (_, x) => OPERATORS.ReduceMax({ axes: spread(x) }, x),
  Greater: elementwise((a, b) => a > b),
  GreaterOrEqual: elementwise((a, b) => a >= b),
  HardSigmoid: (at, x) => tensor(x.shape, x.data.map((value) => clipped((at.alpha ?? 0.2) * value + (at.beta ?? 0.5), 0, 1))),
  HardSwish: unary((value) => value * clipped(value / 6 + 0.5, 0, 1)),
  Identity: (_, x) => x,
  InstanceNormalization: (at, x, scale, shift) => {
    const inner = size(x.shape.slice(2));
    const channel = (place) => Math.floor(place / inner) % x.shape[1];
    return normalized(x, inner, at.epsilon ?? 1e-5, (i) => scale.data[channel(i)], (i) => shift.data[channel(i)]);
  },
  LayerNormalization: (at, x, scale, shift) => {
    const inner = size(x.shape.slice(at.axis ?? -1));
    return normalized(x, inner, at.epsilon ?? 1e-5, (i) => scale.data[i % inner], (i) => (shift ? shift.data[i % inner] : 0));
  },
  LeakyRelu: (at, x) => tensor(x.shape, x.data.map((value) => (value < 0 ? (at.alpha ?? 0.01) * value : value))),
  Less: elementwise((a, b) => a < b),
  LessOrEqual: elementwise((a, b) => a <= b),
  Log: unary(Math.log),
  LogSoftmax: (at, x) => softmax(x, ((at.axis ?? -1) + x.shape.length) % x.shape.length, (value, sum) => value - Math.log(sum)),
  MatMul: (_, a, b) => product(a, b),
  Max: elementwise(Math.max),
  MaxPool: flatPooling(pooling(-Infinity, (most, value) => (value > most ? value : most), (most) => most)),
  Min: elementwise(Math.min),
  Mul: elementwise((a, b) => a * b),
  Neg: unary((value) => -value),
  Not: unary((value) => (value ? 0 : 1)),
  Or: elementwise((a, b) => a || b),
  PRelu: elementwise((a, slope) => (a < 0 ? a * slope : a)),
  Pad: paddedWith,
  Pow: elementwise((a, b) => a ** b),
  Reciprocal: unary((value) => 1 / value),
  ReduceL2: reduction(0, (sum, value) => sum + value * value, Math.sqrt),
  ReduceMax: reduction(-Infinity, Math.max),
  ReduceMean: reduction(0, (sum, value) => sum + value, (sum, count) => sum / count),
  ReduceMin: reduction(Infinity, Math.min),
  ReduceSum: reduction(0, (sum, value) => sum + value),
  ReduceSumSquare: reduction(0, (sum, value) => sum + value * value),
  Relu: unary((value) => (value > 0 ? value : 0)),
  Reshape: reshaped,
  Selu: (at, x) => {
    const [alpha, gamma] = [at.alpha ?? 1.6732632423543772, at.gamma ?? 1.0507009873554805];
    return tensor(x.shape, x.data.map((value) => gamma * (value > 0 ? value : alpha * Math.expm1(value))));
  },
  Shape: (at, x) => {
    const part = x.shape.slice(at.start ?? 0, at.end ?? x.shape.length);
    return tensor([part.length], Float32Array.from(part));
  },
  Sigmoid: unary(sigmoid),
  Slice: (_, x, starts, ends, axes, steps) => sliced(x, numbers(starts), numbers(ends), numbers(axes), numbers(steps)),
  Softmax: (at, x) => softmax(x, ((at.axis ?? -1) + x.shape.length) % x.shape.length, (value, sum) => Math.exp(value) / sum),
  Softplus: unary((value) => Math.max(value, 0) + Math.log1p(Math.exp(-Math.abs(value)))),
  Split: split,
  Sqrt: unary(Math.sqrt),
  Squeeze: squeezed,
  Sub: elementwise((a, b) => a - b),
  Sum: elementwise((a, b) => a + b),
  Tanh: unary(Math.tanh),
  Transpose: (at, x) => {
    const axes = at.perm ?? x.shape.map((_, axis) => axis).reverse();
    const strides = stridesOf(x.shape);
    return viewed(x, axes.map((axis) => x.shape[axis]), axes.map((axis) => strides[axis]));
  },
  Unsqueeze: unsqueezed,
  Where: (_, condition, yes, no) => {
    const shape = broadcastShape(condition, yes, no);
    const [c, a, b] = [condition, yes, no].map((each) => expanded(each, shape).data);
    return tensor(shape, Float32Array.from(c, (flag, place) => (flag ? a[place] : b[place])));
  },
};

/** Return the bytes of base64 text. */
function bytesOf(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** Return deflated bytes as they were. */
async function inflated(bytes) {
  if (typeof DecompressionStream === "undefined") throw new Error("the browser is too old to unpack the weights (DecompressionStream)");
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * Return name -> tensor of packed weights: `entries` say where each lies, with how many bits, and how many rows have a
 * step of their own. With the weights of a `later` epoch, they are the changes from those.
 */
async function unpacked(entries, text, later = {}) {
  const bytes = await inflated(bytesOf(text));
  const found = { ...later };
  for (const [name, entry] of Object.entries(entries)) {
    const out = tensor(entry.shape, later[name] && Float32Array.from(later[name].data));
    if (entry.bits === 32) {
      new Uint8Array(out.data.buffer).set(bytes.subarray(entry.at, entry.at + 4 * out.data.length));
    } else {
      const steps = new Float32Array(bytes.slice(entry.at, entry.at + 4 * entry.rows).buffer);
      addIntegers(bytes, entry.at + 4 * entry.rows, entry.bits, steps, out.data);
    }
    found[name] = out;
  }
  return found;
}

/** Add integers, times their row's step: the lowest bytes of all lie first, then the next ones, 0 in the middle. */
function addIntegers(bytes, start, bits, steps, out) {
  const middle = 2 ** (bits - 1);
  const row = out.length / steps.length;
  const planes = Math.ceil(bits / 8);
  for (let i = 0; i < out.length; i++) {
    let value = 0;
    for (let plane = planes - 1; plane >= 0; plane--) value = 256 * value + bytes[start + plane * out.length + i];
    out[i] += (value - middle) * steps[Math.floor(i / row)];
  }
}

/** Return a function from an input tensor to all named values of the graph. */
function compiled(graph, weights) {
  const known = new Map();
  for (const [name, each] of Object.entries(graph.constants)) known.set(name, tensor(each.shape, Float32Array.from(each.values)));
  for (const [name, each] of Object.entries(weights)) known.set(name, each);
  const run = (node, values) => {
    const given = node.in.map((name) => (name === "" ? undefined : values.get(name)));
    const made = OPERATORS[node.op](node.at, ...given);
    (Array.isArray(made) ? made : [made]).forEach((each, i) => values.set(node.out[i], each));
  };
  const live = graph.nodes.filter((node) => {
    if (!(node.op in OPERATORS)) throw new Error(`the page cannot compute the operator ${node.op}`);
    const constant = node.in.every((name) => name === "" || known.has(name));
    if (constant) run(node, known); // what depends on weights alone is computed once
    return !constant;
  });
  return (image) => {
    const values = new Map(known);
    values.set(graph.input, image);
    for (const node of live) run(node, values);
    return values;
  };
}

const Interpreter = { OPERATORS, compiled, unpacked, tensor };
if (typeof module !== "undefined") module.exports = Interpreter;
