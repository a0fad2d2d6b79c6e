// Written beside the bundle: the hash of everything it was made of, so that a test can see when it is out of date.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync, readdirSync } from "node:fs";

const sources = ["core/package.json", "package.json", "package-lock.json", "tsconfig.json", "record.mjs"];
for (const name of readdirSync("../kstreams_repl/pictures/static")) sources.push(`../kstreams_repl/pictures/static/${name}`);
for (const folder of ["src", "style"]) for (const name of readdirSync(folder)) sources.push(`${folder}/${name}`);
const hash = createHash("sha256");
for (const name of sources.sort()) hash.update(name).update("\0").update(readFileSync(name)).update("\0");
writeFileSync("../kernel_ext/labextension/sources.sha256", hash.digest("hex") + "\n");
writeFileSync(
  "../kernel_ext/labextension/install.json",
  JSON.stringify(
    { packageManager: "python", packageName: "kstreams-repl", uninstallInstructions: "pip uninstall kstreams-repl" }, null, 2,
  ) + "\n",
);
