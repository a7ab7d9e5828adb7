// Owns checking Kubernetes objects against the schemas that its project publishes.
// usage: node manifests.mjs FILE...   What Kubernetes itself does not define is named and passed over.
// Exit code 1: an object is not valid, or there was none to check. NODE_PATH leads to the modules.
import {createRequire} from 'node:module';
import {readFileSync} from 'node:fs';

const load = createRequire(`${process.env.NODE_PATH}/`);
const yaml = load('js-yaml');
// How Node says that a package has no such path, without and with a list of what it exports.
const kNoSuchGroup = ['MODULE_NOT_FOUND', 'ERR_PACKAGE_PATH_NOT_EXPORTED'];

// Whether it is an extension's: all groups with a dot that Kubernetes has itself end in .k8s.io.
function isForeign(object) {
  const group = `${object.apiVersion}`.split('/')[0];
  if (group === 'kustomize.config.k8s.io') {
    return object.kind === 'Kustomization';
  }
  return group.includes('.') && !group.endsWith('.k8s.io');
}

// The class that validates objects of this kind; none if it is an extension's.
function schemaOf(object) {
  let group;
  try {
    group = load(`kubernetes-models/${object.apiVersion}`);
  } catch (error) {
    if (kNoSuchGroup.includes(error.code) && isForeign(object)) {
      return undefined;
    }
    throw error;
  }
  if (group[object.kind] === undefined) {
    throw new Error(`there is no such kind in ${object.apiVersion}`);
  }
  return group[object.kind];
}

let good = 0;
let wrong = 0;
for (const file of process.argv.slice(2)) {
  for (const object of yaml.loadAll(readFileSync(file, 'utf8')).filter(Boolean)) {
    const title = `${file}: ${object.kind} ${object.metadata?.name ?? '(without a name)'}`;
    try {
      const Schema = schemaOf(object);
      if (Schema === undefined) {
        console.log(`${title}: ${object.apiVersion} is not defined by Kubernetes`);
        continue;
      }
      new Schema(object).validate();
      ++good;
    } catch (error) {
      ++wrong;
      console.log(`${title}: ${error.message}`);
    }
  }
}
console.log(`${good + wrong} objects, ${wrong} of them wrong`);
process.exit(good === 0 || wrong > 0 ? 1 : 0);
