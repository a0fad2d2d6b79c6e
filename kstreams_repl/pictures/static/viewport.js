// Navigation in a drawing: zoom about a point, drag, fit, and an overview map. The pane itself scrolls, so focus and search reveal hidden shapes.

const SMALLEST = 0.08;
const LARGEST = 4;
const READABLE = 0.7; // a large picture is scrolled rather than made too small to read
const STEP = 1.25;
const MAP = { width: 180, height: 120 };
const DRAG = 5; // less than that is a click
export const SVG = "http://www.w3.org/2000/svg";

export function makeViewport({ canvas, map, onScale }) {
  let svg = null;
  let size = { width: 1, height: 1 };
  let scale = 1;
  let chosen = false; // whether the user has chosen a scale
  let seen = null;

  const apply = (wanted) => {
    scale = Math.min(LARGEST, Math.max(SMALLEST, wanted));
    if (!svg) return;
    svg.style.width = `${size.width * scale}px`;
    svg.style.height = `${size.height * scale}px`;
    onScale(scale);
    track();
  };
  const zoom = (factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) => {
    chosen = true;
    const before = scale;
    const point = [(canvas.scrollLeft + x) / before, (canvas.scrollTop + y) / before];
    apply(scale * factor);
    canvas.scrollLeft = point[0] * scale - x;
    canvas.scrollTop = point[1] * scale - y;
    track();
  };
  const natural = () => {
    chosen = false;
    const width = canvas.clientWidth || size.width;
    apply(Math.min(1, Math.max(READABLE, width / size.width)));
  };
  const fit = () => {
    chosen = true;
    apply(Math.min(1, canvas.clientWidth / size.width, canvas.clientHeight / size.height));
  };
  const track = () => {
    if (!seen || map.hidden) return;
    // no map while everything is visible: it would cover a part
    const whole = canvas.scrollWidth <= canvas.clientWidth + 1 && canvas.scrollHeight <= canvas.clientHeight + 1;
    map.style.visibility = whole ? "hidden" : "";
    const area = { x: canvas.scrollLeft, y: canvas.scrollTop, width: canvas.clientWidth, height: canvas.clientHeight };
    for (const [name, value] of Object.entries(area)) {
      const most = name === "width" ? size.width : name === "height" ? size.height : Infinity;
      seen.setAttribute(name, Math.min(value / scale, most));
    }
  };
  const draw = (groups) => {
    map.replaceChildren();
    seen = null;
    if (map.hidden || !svg) return;
    const ratio = Math.min(MAP.width / size.width, MAP.height / size.height);
    map.setAttribute("width", Math.max(24, size.width * ratio));
    map.setAttribute("height", Math.max(24, size.height * ratio));
    map.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
    const moved = map.appendChild(document.createElementNS(SVG, "g"));
    moved.setAttribute("transform", svg.querySelector("g[transform]")?.getAttribute("transform") ?? "");
    for (const link of svg.querySelectorAll("[data-link]")) {
      moved.appendChild(document.createElementNS(SVG, "path")).setAttribute("d", link.getAttribute("d"));
    }
    for (const group of groups) {
      const outline = group.querySelector(".outline");
      if (!outline) continue;
      const box = outline.getBBox();
      const rect = moved.appendChild(document.createElementNS(SVG, "rect"));
      for (const name of ["x", "y", "width", "height"]) rect.setAttribute(name, box[name]);
      group.ksMapped = rect;
      rect.setAttribute("class", group.getAttribute("class"));
    }
    seen = map.appendChild(document.createElementNS(SVG, "rect"));
    seen.setAttribute("class", "seen");
    track();
  };

  const go = (event) => {
    const box = map.getBoundingClientRect();
    canvas.scrollLeft = ((event.clientX - box.left) / box.width) * size.width * scale - canvas.clientWidth / 2;
    canvas.scrollTop = ((event.clientY - box.top) / box.height) * size.height * scale - canvas.clientHeight / 2;
  };
  map.addEventListener("pointerdown", (event) => {
    map.setPointerCapture(event.pointerId);
    go(event);
    event.preventDefault();
  });
  map.addEventListener("pointermove", (event) => {
    if (event.buttons & 1) go(event);
  });

  let from = null;
  let dragged = false;
  canvas.addEventListener("pointerdown", (event) => {
    dragged = false;
    const inside = event.offsetX < canvas.clientWidth || event.target !== canvas; // not the scroll bars
    from = event.button === 0 && event.pointerType === "mouse" && inside
      ? { x: event.clientX, y: event.clientY, left: canvas.scrollLeft, top: canvas.scrollTop } : null;
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!from || !(event.buttons & 1)) return;
    const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
    if (!dragged && Math.hypot(dx, dy) < DRAG) return;
    if (!dragged) {
      dragged = true;
      canvas.setPointerCapture(event.pointerId);
      canvas.classList.add("drags");
    }
    canvas.scrollLeft = from.left - dx;
    canvas.scrollTop = from.top - dy;
  });
  const letGo = () => {
    from = null;
    canvas.classList.remove("drags");
  };
  canvas.addEventListener("pointerup", letGo);
  canvas.addEventListener("pointercancel", letGo);
  canvas.addEventListener("click", (event) => {
    if (dragged) event.stopImmediatePropagation(); // the end of a drag is not a click
    dragged = false;
  }, true);
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    const box = canvas.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
    event.preventDefault();
  }, { passive: false });
  canvas.addEventListener("scroll", track, { passive: true });
  let roomy = 0;
  const resized = new ResizeObserver(([entry]) => {
    const width = Math.round(entry.contentRect.width);
    if (width !== roomy && !chosen && svg) natural(); // a drawer that opens leaves the scale as it is
    roomy = width;
    track();
  });
  resized.observe(canvas.closest(".ks-panel"));

  return {
    get scale() {
      return scale;
    },
    zoomIn: () => zoom(STEP),
    zoomOut: () => zoom(1 / STEP),
    actual: () => zoom(1 / scale),
    fit,
    // A new drawing keeps the scale that the user chose.
    show: (drawn, groups) => {
      svg = drawn;
      if (!svg) return;
      size = { width: Number(svg.getAttribute("width")), height: Number(svg.getAttribute("height")) };
      if (chosen) apply(scale);
      else natural();
      draw(groups);
    },
    drawMap: draw,
    // Scroll as little as needed to make a shape visible.
    reveal: (group) => {
      const [shape, pane] = [group.getBoundingClientRect(), canvas.getBoundingClientRect()];
      const move = (low, high, least, most) => (low < least ? low - least - 12 : high > most ? Math.min(high - most + 12, low - least) : 0);
      canvas.scrollLeft += move(shape.left, shape.right, pane.left, pane.left + canvas.clientWidth);
      canvas.scrollTop += move(shape.top, shape.bottom, pane.top, pane.top + canvas.clientHeight);
    },
    keys: { "+": () => zoom(STEP), "=": () => zoom(STEP), "-": () => zoom(1 / STEP), 0: () => zoom(1 / scale), f: fit },
    stop: () => resized.disconnect(),
  };
}
