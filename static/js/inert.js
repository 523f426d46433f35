// Text of others as nodes: always text, never markup, with what hides in it shown as marks. The browser's half of
// engine/visible.py, for text that arrives while one looks; what stays on the page is the server's.
window.inert = (() => {
  const HIDDEN = new RegExp(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u070f\\u200b-\\u200f\\u202a-\\u202e\\u2028\\u2029\\u2060-\\u206f\\ufeff" +
    "\\ufff9-\\ufffb\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u2800\\u3164\\uffa0\\ufe00-\\ufe0e\\u{e0100}-\\u{e01ef}" +
    "\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e007f}\\ud800-\\udfff\\ufffe\\uffff]",
    "gu",
  );
  const SHORT = {
    0x1b: "ESC", 0x85: "NEL", 0xad: "SHY", 0x61c: "ALM", 0x200b: "ZWSP", 0x200c: "ZWNJ", 0x200d: "ZWJ", 0x200e: "LRM",
    0x200f: "RLM", 0x2028: "LSEP", 0x2029: "PSEP", 0x202a: "LRE", 0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO",
    0x202e: "RLO", 0x2060: "WJ", 0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI", 0xfeff: "BOM",
  };
  const JOINS = /[\u0600-\u0dff\u2190-\u2bff\ufe0f\u{1f000}-\u{1faff}]/u;

  const belongs = (text, match, end) => {
    if (match === "\r") return text[end] === "\n";
    if (match !== "\u200c" && match !== "\u200d") return false;
    const before = [...text.slice(Math.max(0, end - 3), end - 1)].pop() ?? "";
    const after = String.fromCodePoint(text.codePointAt(end) ?? 0x20);
    return JOINS.test(before) && JOINS.test(after);
  };

  const mark = (character) => {
    const code = character.codePointAt(0);
    const hex = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
    const span = document.createElement("span");
    span.className = "hidden-char";
    span.title = hex;
    span.textContent = SHORT[code] ?? (code < 0x20 ? String.fromCharCode(0x2400 + code) : hex);
    return span;
  };

  return (text) => {
    const nodes = document.createDocumentFragment();
    let start = 0;
    for (const match of text.matchAll(HIDDEN)) {
      const end = match.index + match[0].length;
      if (belongs(text, match[0], end)) continue;
      if (match.index > start) nodes.append(text.slice(start, match.index));
      nodes.append(mark(match[0]));
      start = end;
    }
    if (start < text.length) nodes.append(text.slice(start));
    return nodes;
  };
})();
