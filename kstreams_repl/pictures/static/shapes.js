// Updates a drawing in place: marks of shapes, widths of links, sparklines.

const LINE = 15;

// Replace the lines that a mark adds to a shape, and centre all its lines; name and detail stay. A badge sits on the upper border.
export function setMark(group, mark) {
  const text = JSON.stringify(mark);
  if (group.ksMark === text) return false;
  group.ksMark = text;
  for (const text of group.querySelectorAll("text.badge, text.number")) text.remove();
  for (const name of [...group.classList]) if (name.startsWith("is-")) group.classList.remove(name);
  for (const [kind, content] of mark) {
    if (kind === "state") {
      if (content) group.classList.add(content);
      continue;
    }
    const text = document.createElementNS(group.namespaceURI, "text");
    text.setAttribute("class", kind);
    text.setAttribute("x", kind === "badge" ? Number(group.dataset.left) + 10 : group.dataset.x);
    if (kind === "badge") text.setAttribute("y", Number(group.dataset.top) + 4);
    text.textContent = content;
    group.append(text);
  }
  const lines = group.querySelectorAll("text:not(.badge)");
  const top = Number(group.dataset.y) - lines.length * (LINE / 2) + 11;
  lines.forEach((line, index) => line.setAttribute("y", top + LINE * index));
  const spoken = mark.filter(([kind]) => kind !== "state").map(([, content]) => content);
  group.setAttribute("aria-label", [group.dataset.label, ...spoken].join(", "));
  return true;
}

// Set a link's width, which Python computes from its records per second.
export function setFlow(link, width, rate) {
  const text = `${width} ${rate}`;
  if (link.ksFlow === text) return;
  link.ksFlow = text;
  link.style.strokeWidth = width ? `${width}px` : "";
  let title = link.querySelector("title");
  if (rate === null) return title?.remove();
  if (!title) {
    title = document.createElementNS(link.namespaceURI, "title");
    link.append(title);
  }
  title.textContent = `${Number(rate).toLocaleString("en")} records/s`;
}

const SECONDS = 120;
const WIDTH = 96;
const HEIGHT = 20;

// Draw a sparkline and its current value. Points: [[seconds, value], …], the latest last.
export function showHistory(container, what, points, unit) {
  if (points.length === 0) return container.replaceChildren();
  const [now, current] = points[points.length - 1];
  const most = Math.max(...points.map(([, value]) => value), 1);
  const xy = points.map(([at, value]) => [WIDTH - ((now - at) / SECONDS) * WIDTH, HEIGHT - 1 - (value / most) * (HEIGHT - 3)]);
  const line = xy.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  let svg = container.querySelector("svg");
  if (!svg) {
    const make = (tag, parent) => parent.appendChild(document.createElementNS("http://www.w3.org/2000/svg", tag));
    svg = make("svg", container);
    svg.setAttribute("class", "spark");
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    make("title", svg);
    make("polygon", svg);
    make("polyline", svg);
    container.append(document.createElement("span"));
  }
  const label = `${what} over the last ${Math.min(SECONDS, Math.round(now - points[0][0]))} s, at most ${Math.round(most).toLocaleString("en")}`;
  svg.setAttribute("aria-label", label);
  svg.querySelector("title").textContent = label;
  svg.querySelector("polyline").setAttribute("points", line);
  svg.querySelector("polygon").setAttribute("points", `${xy[0][0].toFixed(1)},${HEIGHT} ${line} ${WIDTH},${HEIGHT}`);
  container.lastElementChild.textContent = `${unit === "/s" ? "" : `${what} `}${Math.round(current).toLocaleString("en")}${unit === "/s" ? " records/s" : ""}`;
}
