// Swagger UI shows the service's description. By default, it would also send it to an external
// validator. `validatorUrl: null` prevents this.

const url = document.getElementById("docs").dataset.description;
SwaggerUIBundle({ dom_id: "#docs", url, validatorUrl: null, deepLinking: true });
