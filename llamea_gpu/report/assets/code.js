// Programs and diffs as text nodes. The highlighter knows Python's words, strings, comments and
// numbers, and nothing else.

const PYTHON = new RegExp(
  [
    "(?<t>(?:[rbfuRBFU]{0,2})(?:\"\"\"[\\s\\S]*?(?:\"\"\"|$)|'''[\\s\\S]*?(?:'''|$)|\"(?:\\\\.|[^\"\\\\\\n])*\"?|'(?:\\\\.|[^'\\\\\\n])*'?))",
    "(?<c>#[^\\n]*)",
    "(?<k>\\b(?:False|None|True|and|as|assert|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|self)\\b)",
    "(?<n>\\b\\d[\\d_]*(?:\\.\\d*)?(?:[eE][-+]?\\d+)?\\b)",
    "(?<w>[A-Za-z_]\\w*)",
  ].join("|"),
  "g",
);

function highlighted(source) {
  const parts = [];
  let end = 0;
  for (const match of source.matchAll(PYTHON)) {
    const kind = Object.keys(match.groups).find((name) => match.groups[name] !== undefined);
    if (kind === "w") continue;
    parts.push(source.slice(end, match.index), element("span", { class: kind }, match[0]));
    end = match.index + match[0].length;
  }
  parts.push(source.slice(end));
  return parts.filter((part) => part !== "");
}

function codeBlock(source, label) {
  return element("pre", { class: "code", tabindex: "0", "aria-label": label }, ...highlighted(source));
}

function startCode() {
  for (const block of document.querySelectorAll("pre[data-python]")) {
    block.replaceChildren(...highlighted(block.textContent));
  }
}

// Groups of [changed, a0, a1, b0, b1] over the lines of both programs, as a unified diff.
function diffBlock(groups, before, after, label) {
  const block = element("pre", { class: "diff", tabindex: "0", "aria-label": label });
  const line = (kind, sign, text) => block.append(element("span", { class: `line ${kind}` }, `${sign}${text}`));
  for (const group of groups) {
    const [first, last] = [group[0], group[group.length - 1]];
    const header = `@@ -${first[1] + 1},${last[2] - first[1]} +${first[3] + 1},${last[4] - first[3]} @@`;
    line("hunk", "", header);
    for (const [changed, a0, a1, b0, b1] of group) {
      if (!changed) {
        for (let i = a0; i < a1; i += 1) line("same", " ", before[i]);
      } else {
        for (let i = a0; i < a1; i += 1) line("del", "-", before[i]);
        for (let i = b0; i < b1; i += 1) line("add", "+", after[i]);
      }
    }
  }
  return block;
}
