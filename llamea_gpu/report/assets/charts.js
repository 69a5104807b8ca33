// Figures: tokens become the theme's colours, Plotly draws what is in sight.

const figures = {};
const drawn = new Set();
let plotly = null;

const SCALES = {
  light: {
    "@sequential": ["#440154", "#443983", "#31688e", "#21918c", "#35b779", "#6ccd5a", "#a5db36"],
    "@diverging": ["#9c3f04", "#d9772b", "#f3bd8b", "#f5f5f5", "#a6c9e8", "#4a90cc", "#0b4f94"],
  },
  dark: {
    "@sequential": ["#5a4b9c", "#3f6fa8", "#2d8fa0", "#2fab8a", "#63c56f", "#a9da4a", "#fde725"],
    "@diverging": ["#f0a05a", "#b96a24", "#6b4526", "#2b3037", "#274d72", "#3b83bf", "#86c3f7"],
  },
};

function scale(token) {
  const theme = document.documentElement.dataset.theme === "dark" ? "dark" : "light";
  const colours = SCALES[theme][token];
  return colours.map((colour, place) => [place / (colours.length - 1), colour]);
}

function colourOf(token) {
  if (token in SCALES.light) return scale(token);
  const [name, percent] = token.slice(1).split("/");
  const value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  if (!percent) return value;
  return value + Math.round(2.55 * Number(percent)).toString(16).padStart(2, "0");
}

// Only colour fields hold tokens: a label that begins with "@" stays as it is.
function painted(value, key = "") {
  if (typeof value === "string") {
    return /color/i.test(key) && value.startsWith("@") ? colourOf(value) : value;
  }
  if (Array.isArray(value)) return /color/i.test(key) ? value.map((item) => painted(item, key)) : value.map((item) => (typeof item === "object" ? painted(item) : item));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, painted(item, name)]));
}

function themedLayout(layout, width) {
  const narrow = width < 520;
  const base = {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    autosize: true,
    font: { family: "system-ui, sans-serif", size: narrow ? 11 : 12, color: colourOf("@ink") },
    margin: { l: narrow ? 40 : 54, r: narrow ? 10 : 18, t: 10, b: 42 },
    hoverlabel: { bgcolor: colourOf("@panel"), bordercolor: colourOf("@muted"), align: "left", font: { color: colourOf("@ink") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colourOf("@muted"), activecolor: colourOf("@ink") },
  };
  const mergedLayout = { ...base, ...painted(layout) };
  for (const key of Object.keys(mergedLayout)) {
    if (!/^[xy]axis\d*$/.test(key)) continue;
    mergedLayout[key] = { gridcolor: colourOf("@grid"), linecolor: colourOf("@rule"), zerolinecolor: colourOf("@muted"), ...mergedLayout[key] };
  }
  // A finger that moves over a chart shall scroll the page.
  if (matchMedia("(pointer: coarse)").matches && mergedLayout.dragmode !== "pan") mergedLayout.dragmode = false;
  return mergedLayout;
}

// Named one by one: Plotly's own selection has a button that would send the chart elsewhere.
const CONFIG = {
  responsive: true,
  displaylogo: false,
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  toImageButtonOptions: { format: "svg" },
};

function draw(host, spec, config = {}) {
  const data = painted(spec.data);
  plotly.react(host, data, themedLayout(spec.layout, host.clientWidth), { ...CONFIG, ...config });
  // A reader who hears the page has the summary and the numbers; loose labels would only be noise.
  host.querySelectorAll("svg.main-svg").forEach((svg) => svg.setAttribute("aria-hidden", "true"));
  if (!host.dataset.listening) {
    host.dataset.listening = "1";
    host.on("plotly_click", (event) => {
      const slot = event.points[0] && event.points[0].customdata;
      if (Number.isInteger(slot)) openCandidate(slot, host);
    });
  }
}

function drawVisible() {
  if (!plotly) return;
  for (const host of document.querySelectorAll(".plot[id]")) {
    if (host.offsetParent === null || !figures[host.id]) continue;
    if (drawn.has(host.id)) { plotly.Plots.resize(host); continue; }
    drawn.add(host.id);
    if (host.id === "tree") drawTree();
    else draw(host, figures[host.id]);
  }
}

function redrawAll() {
  if (!plotly) return;
  const drawnIds = [...drawn];
  drawn.clear();
  for (const id of drawnIds) {
    // What is out of sight is drawn when it is looked at.
    if (byId(id) && byId(id).offsetParent === null) plotly.purge(byId(id)), delete byId(id).dataset.listening;
  }
  drawVisible();
  redrawDetails();
}

async function unpacked(id) {
  const packed = byId(id).textContent;
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

async function startCharts() {
  // Inline, because the policy knows this very text by its digest.
  document.head.append(element("script", {}, await unpacked("plotly")));
  plotly = window.Plotly;
  drawVisible();
}
