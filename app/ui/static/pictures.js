// Images in the form and in the response.
//
// The type of a base64 image is the first characters of its text: each format begins with fixed
// bytes.

const TYPES = { iVBORw0KGgo: "png", "/9j/": "jpeg", R0lGOD: "gif", UklGR: "webp" };
const MAX_PREVIEWS = 16;

/** Return true if base64 text is an image of a known type. It may also be null. */
export function isImage(base64) {
  return typeOf(base64) !== undefined;
}

/** Return an image element for base64 text. */
export function imageOf(base64, label) {
  const image = document.createElement("img");
  image.src = `data:image/${typeOf(base64)};base64,${base64}`;
  image.alt = label;
  return image;
}

/** Return the type of a base64 image, or undefined. */
function typeOf(base64) {
  const signature = Object.keys(TYPES).find((start) => base64?.startsWith(start));
  return TYPES[signature];
}

/** Return a canvas with the pixels in `bytes`, row by row, in gray, RGB or RGBA. */
export function imageOfPixels(bytes, [height, width, channels], label) {
  const image = new ImageData(width, height);
  for (let pixel = 0; pixel < width * height; pixel++) {
    const start = pixel * channels;
    image.data.set(rgbaOf(bytes.slice(start, start + channels)), pixel * 4);
  }

  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width, height, role: "img", ariaLabel: label });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** Return a pixel of one, three or four channels as red, green, blue and opacity. */
function rgbaOf(pixel) {
  if (pixel.length === 1) {
    const [gray] = pixel;
    return [gray, gray, gray, 255];
  }
  if (pixel.length === 3) return [...pixel, 255];
  return pixel;
}

/** Show the selected files, or the example, next to each file input. */
export function showPictures(form, model) {
  for (const control of form.querySelectorAll("input[type=file]")) {
    const field = control.closest("[data-input]");
    const { example } = model.inputs[field.dataset.input];
    const pictures = picturesOf([...control.files], example);
    field.querySelector(".pictures").replaceChildren(...pictures);
  }
}

/** Return previews of the first files, or the images of the example if there are no files. */
function picturesOf(files, example) {
  if (files.length) return files.slice(0, MAX_PREVIEWS).map(previewOf);
  const images = example.filter(isImage);
  return images.map((base64) => imageOf(base64, "The example"));
}

/** Return an image element for a file. Its bytes are released when it has loaded, or cannot. */
function previewOf(file) {
  const image = document.createElement("img");
  const address = URL.createObjectURL(file);
  const release = () => URL.revokeObjectURL(address);
  image.onload = release;
  image.onerror = release;
  image.src = address;
  image.alt = file.name;
  return image;
}
