(function () {
  "use strict";
  var form = document.getElementById("filters");
  if (!form) return;
  var said = document.getElementById("shown");
  var queries = Array.prototype.slice.call(document.querySelectorAll("#queries .q"));
  function chosen(name) { return form.elements[name].value; }
  function update() {
    var task = chosen("task"), outcome = chosen("outcome"), mistake = chosen("mistake"), count = 0;
    queries.forEach(function (query) {
      var data = query.dataset;
      var kept = (!task || data.t === task) && (!outcome || data.o === outcome) &&
        (!mistake || data.e.split(" ").indexOf(mistake) >= 0);
      query.hidden = !kept;
      if (kept) count += 1;
    });
    said.textContent = count + " of " + queries.length + " queries shown";
  }
  form.hidden = false;
  form.addEventListener("change", update);
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  update();
})();
