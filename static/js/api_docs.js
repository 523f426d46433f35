// Shows the OpenAPI schema. Tokens typed here stay in this page: nothing is kept in the browser's storage.
const place = document.getElementById("api");
SwaggerUIBundle({
  url: place.dataset.schema,
  dom_id: "#api",
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
  deepLinking: true,
  docExpansion: "none",  // of so many operations the list of their kinds says more
  persistAuthorization: false,
  validatorUrl: null,
});
