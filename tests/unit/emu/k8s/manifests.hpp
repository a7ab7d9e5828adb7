// Owns the manifests that tests begin with, and change.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "emu/k8s/plan.hpp"

namespace weft::k8s {

// The shape of tutorials: four InfiniBand NICs of eight virtual functions each, one network with
// whereabouts, and pods that take a function each.
inline const std::string kPolicy = R"(apiVersion: sriovnetwork.openshift.io/v1
kind: SriovNetworkNodePolicy
metadata:
  name: ib
  namespace: sriov-network-operator
spec:
  resourceName: mlnxnics
  nodeSelector:
    feature.node.kubernetes.io/network-sriov.capable: "true"
  priority: 99
  numVfs: 8
  nicSelector:
    vendor: "15b3"
    deviceID: "101b"
    pfNames: [ibs1f0, ibs1f1, ibs2f0, ibs2f1]
  deviceType: netdevice
  isRdma: true
  linkType: ib
)";
inline const std::string kNetwork = R"(apiVersion: sriovnetwork.openshift.io/v1
kind: SriovIBNetwork
metadata:
  name: ib-net
  namespace: sriov-network-operator
spec:
  resourceName: mlnxnics
  networkNamespace: default
  linkState: enable
  ipam: |
    {"type": "whereabouts", "range": "192.168.100.0/24"}
)";
inline const std::string kPod = R"(apiVersion: v1
kind: Pod
metadata:
  name: test-1
  annotations:
    k8s.v1.cni.cncf.io/networks: ib-net
spec:
  containers:
    - name: test
      image: debian
      command: [sleep, infinity]
      resources:
        requests: {openshift.io/mlnxnics: 1}
        limits: {openshift.io/mlnxnics: 1}
)";
inline const std::string kJob = R"(apiVersion: batch/v1
kind: Job
metadata: {name: many}
spec:
  parallelism: 64
  completions: 64
  template:
    metadata:
      annotations: {k8s.v1.cni.cncf.io/networks: ib-net}
    spec:
      containers:
        - name: test
          image: debian
          resources: {limits: {openshift.io/mlnxnics: "1"}}
)";

// The text with one part of it replaced, which must be there.
inline std::string changed(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

inline PodPlan plan_of(const std::string& policy, const std::string& network,
                       const std::string& pods, const PlanOptions& options = {}) {
  return make_plan({{"policy.yaml", policy}, {"network.yaml", network}, {"pods.yaml", pods}},
                   options);
}

}  // namespace weft::k8s
