// Tells the server the browser's time zone, once and when it changes. The next page shows times in it, and this one says
// so in its own words (data-words-next).
(() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const known = document.cookie.split("; ").find((part) => part.startsWith("tz="));
  if (!zone || known === `tz=${zone}`) return;
  document.cookie = `tz=${zone}; path=/; max-age=31536000; samesite=lax`;
  if (document.cookie.split("; ").some((part) => part.startsWith("zone="))) return; // another one was chosen
  for (const element of document.querySelectorAll(".zone")) element.textContent = element.dataset.wordsNext.replace("{zone}", zone);
})();
