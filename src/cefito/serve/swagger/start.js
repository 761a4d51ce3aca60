"use strict";
// The parts of Swagger UI that would ask other servers (its validator's badge) are switched off.
window.addEventListener("load", () => {
  window.SwaggerUIBundle({
    url: "openapi.json",
    dom_id: "#docs",
    validatorUrl: null,
    deepLinking: true,
    defaultModelsExpandDepth: 0,
  });
});
