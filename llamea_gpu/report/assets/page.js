// Elements, theme, tabs. Text reaches the page through text nodes only.

const byId = (id) => document.getElementById(id);

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") {
      for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    } else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function showProblem(text) {
  const box = byId("problem");
  box.textContent = text;
  box.hidden = false;
}

// A page opened from disk may have no storage; then a choice lasts until the page is closed.
function remembered(key) {
  try { return sessionStorage.getItem(key); } catch { return null; }
}

function remember(key, value) {
  try { sessionStorage.setItem(key, value); } catch { /* not kept */ }
}

// The address says what is open, so that a reload or a shared link finds it again.
function setAddress(part) {
  try { history.replaceState(null, "", `#${part}`); } catch { /* a page in a frame has none */ }
}

const themeListeners = [];

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const button = byId("theme");
  button.setAttribute("aria-pressed", String(theme === "dark"));
  button.textContent = theme === "dark" ? "Light" : "Dark";
  button.setAttribute("aria-label", theme === "dark" ? "Light colours" : "Dark colours");
  themeListeners.forEach((listener) => listener());
}

function startTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const preferred = () => remembered("theme") || (system.matches ? "dark" : "light");
  setTheme(preferred());
  system.addEventListener("change", () => setTheme(preferred()));
  byId("theme").addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    remember("theme", next);
    setTheme(next);
  });
}

// Tabs after the ARIA pattern: one tab stop, arrows move, Home and End jump.
// `panels` are [{key, title, panel}]; `chosen` is told the key of the tab that was opened.
function makeTabs(host, label, panels, chosen) {
  const list = element("div", { role: "tablist", "aria-label": label });
  const tabs = panels.map(({ key, title, panel }, index) => {
    const id = `${panel.id}-tab`;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", id);
    const tab = element("button", {
      type: "button", role: "tab", id, "aria-controls": panel.id, "data-key": key,
      on: { click: () => open(index) },
    }, title);
    list.append(tab);
    return tab;
  });
  list.addEventListener("keydown", (event) => {
    const at = tabs.indexOf(document.activeElement);
    const steps = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 };
    if (at < 0 || !(event.key in steps)) return;
    event.preventDefault();
    open((steps[event.key] + tabs.length) % tabs.length, true);
  });
  function open(index, focus = false) {
    panels.forEach(({ panel }, place) => {
      panel.hidden = place !== index;
      tabs[place].setAttribute("aria-selected", String(place === index));
      tabs[place].tabIndex = place === index ? 0 : -1;
    });
    if (focus) tabs[index].focus();
    tabs[index].scrollIntoView({ block: "nearest", inline: "nearest" });
    chosen(panels[index].key);
  }
  host.prepend(list);
  host.classList.add("tabbed");
  return {
    open: (key) => open(Math.max(0, panels.findIndex((item) => item.key === key))),
    has: (key) => panels.some((item) => item.key === key),
  };
}

// Tab sets that the page was written with, by the tabs in them.
const tabSets = [];

function startTabs() {
  for (const host of document.querySelectorAll("[data-tabs]")) {
    const panels = [...host.children]
      .filter((child) => child.matches("section[data-tab]"))
      .map((panel) => ({ key: panel.dataset.key, title: panel.dataset.tab, panel }));
    const outer = host.hasAttribute("data-outer");
    const set = makeTabs(host, host.getAttribute("aria-label"), panels, (key) => {
      if (outer && started) setAddress(key);
      drawVisible();
    });
    tabSets.push({ ...set, panels });
    set.open(panels[0].key);
  }
}

let started = false;

// Opens the tab `key`, and those around it.
function openTab(key) {
  for (const set of tabSets) {
    for (const { key: own, panel } of set.panels) {
      if (own === key || panel.querySelector(`section[data-key="${CSS.escape(key)}"]`)) set.open(own);
    }
  }
}
