// Validates objects of operators (JSON, one a line on stdin) against the schemas of their definitions.
// Argument: the folder that the packages are installed in.

import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const packages = {
  'keda.sh': 'keda',
  'monitoring.coreos.com': 'prometheus-operator',
  'gateway.networking.k8s.io': 'gateway-api',
};

let failed = false;
for await (const line of createInterface({ input: process.stdin })) {
  const object = JSON.parse(line);
  const [group] = object.apiVersion.split('/');
  const file = `${process.argv[2]}/node_modules/@kubernetes-models/${packages[group]}/${object.apiVersion}/index.js`;
  try {
    const { [object.kind]: Model } = await import(pathToFileURL(file));
    new Model(object).validate();
  } catch (error) {
    failed = true;
    console.error(`${object.kind} ${object.metadata.name}: ${error.message}`);
  }
}
process.exit(failed ? 1 : 0);
