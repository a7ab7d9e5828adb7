// Owns checking Kubernetes objects against the schemas that its project publishes.
// usage: node manifests.mjs FILE...   What Kubernetes itself does not define is named and passed over.
// Exit code 1: an object is not valid, or there was none to check. NODE_PATH leads to the modules.
import {createRequire} from 'node:module';
import {readFileSync} from 'node:fs';

const load = createRequire(`${process.env.NODE_PATH}/`);
const yaml = load('js-yaml');

function schemaOf(object) {
  try {
    return load(`kubernetes-models/${object.apiVersion}`)[object.kind];
  } catch {
    return undefined;
  }
}

let checked = 0;
let wrong = 0;
for (const file of process.argv.slice(2)) {
  for (const object of yaml.loadAll(readFileSync(file, 'utf8')).filter(Boolean)) {
    const Schema = schemaOf(object);
    if (Schema === undefined) {
      console.log(`${file}: ${object.apiVersion} ${object.kind} is not defined by Kubernetes`);
      continue;
    }
    ++checked;
    try {
      new Schema(object).validate();
    } catch (error) {
      ++wrong;
      console.log(`${file}: ${object.kind}: ${error.message}`);
    }
  }
}
console.log(`${checked} objects, ${wrong} of them wrong`);
process.exit(checked === 0 || wrong > 0 ? 1 : 0);
