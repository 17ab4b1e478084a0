// Images in the form and in the response.

const SIGNATURES = { iVBORw0KGgo: "png", "/9j/": "jpeg", R0lGOD: "gif", UklGR: "webp" };
const MAX_PREVIEWS = 16;

export function isImage(base64) {
  return Boolean(typeOf(base64));
}

/** Return an image element for base64 text. */
export function imageOf(base64, label) {
  const src = `data:image/${typeOf(base64)};base64,${base64}`;
  return Object.assign(document.createElement("img"), { src, alt: label });
}

function typeOf(base64) {
  const begin = Object.keys(SIGNATURES).find((each) => base64?.startsWith(each));
  return SIGNATURES[begin];
}

/** Return a canvas with the pixels in `bytes`, row by row, in gray, RGB or RGBA. */
export function imageOfPixels(bytes, [height, width, channels], label) {
  const canvas = Object.assign(document.createElement("canvas"), { width, height, role: "img", ariaLabel: label });
  const image = new ImageData(width, height);
  for (let pixel = 0; pixel < width * height; pixel++) {
    const at = pixel * channels;
    const rgb = channels === 1 ? [bytes[at], bytes[at], bytes[at]] : bytes.slice(at, at + 3);
    image.data.set([...rgb, channels === 4 ? bytes[at + 3] : 255], pixel * 4);
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** Show the selected files, or the example, next to each file input. */
export function showPictures(form, model) {
  for (const control of form.querySelectorAll("input[type=file]")) {
    const field = control.closest("[data-input]");
    const { example } = model.inputs[field.dataset.input];
    const chosen = [...control.files].slice(0, MAX_PREVIEWS).map(preview);
    const shown = chosen.length ? chosen : example.filter(isImage).map((text) => imageOf(text, "The example"));
    field.querySelector(".pictures").replaceChildren(...shown);
  }
}

function preview(file) {
  const image = document.createElement("img");
  const address = URL.createObjectURL(file);
  image.onload = image.onerror = () => URL.revokeObjectURL(address);
  return Object.assign(image, { src: address, alt: file.name });
}
