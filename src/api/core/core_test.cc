// Core kinds describe only some members. The others must survive a round trip.

#include <gtest/gtest.h>

#include "api/core/deployment.h"
#include "api/core/endpoint_slice.h"
#include "api/core/endpoints.h"
#include "api/core/event.h"
#include "api/core/node.h"
#include "api/core/pod.h"
#include "api/core/service.h"
#include "api/edgeai/edge_node.h"
#include "codec/yaml.h"

namespace varda::api {
namespace {

Json yaml(std::string_view text) { return codec::parse_yaml(text).value(); }

template <typename T>
void expect_preserved(std::string_view text) {
  const Json object = yaml(text);
  auto read = T::from_json(object);
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_EQ(codec::write_json_pretty(read->to_json()),
            codec::write_json_pretty(T::from_json(read->to_json())->to_json()));
  EXPECT_EQ(read->to_json(), object) << codec::write_json_pretty(read->to_json());
}

TEST(CoreKinds, JsonRoundTripKeepsAllMembers) {
  expect_preserved<Pod>(R"(
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, labels: {a: b}, managedFields: [{manager: kubectl}]}
spec:
  nodeName: edge0
  hostNetwork: true
  priority: 0
  containers:
  - name: server
    image: varda-serve
    imagePullPolicy: Never
    lifecycle: {preStop: {exec: {command: [sleep, "1"]}}}
    env: [{name: A, value: x}, {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
    ports: [{name: http, containerPort: 8080, hostIP: 0.0.0.0}]
    readinessProbe: {httpGet: {path: /, port: http}, periodSeconds: 1}
    volumeMounts: [{name: model, mountPath: /models/a, readOnly: true, mountPropagation: None}]
  volumes: [{name: model, hostPath: {path: /x, type: Directory}}]
  tolerations: [{key: k, operator: Exists, effect: NoExecute, tolerationSeconds: 0}]
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
status:
  phase: Running
  qosClass: BestEffort
  conditions: [{type: Ready, status: "True", lastProbeTime: null, lastTransitionTime: "2024-05-01T10:00:00Z"}]
  containerStatuses: [{name: server, ready: true, restartCount: 0, image: varda-serve, imageID: "", state: {running: {}}, lastState: {}}]
)");
  expect_preserved<Node>(R"(
apiVersion: v1
kind: Node
metadata: {name: edge0}
spec: {podCIDR: 10.0.0.0/24, unschedulable: true, taints: [{key: a, effect: NoSchedule}]}
status:
  addresses: [{type: InternalIP, address: 127.1.2.3}]
  conditions: [{type: Ready, status: Unknown, lastHeartbeatTime: "2024-05-01T10:00:00Z"}]
  images: [{names: [a]}]
)");
  expect_preserved<Service>(R"(
apiVersion: v1
kind: Service
metadata: {name: s, namespace: default}
spec: {type: NodePort, sessionAffinity: None, selector: {a: b}, ports: [{port: 80, targetPort: http, nodePort: 30000, appProtocol: http}]}
status: {loadBalancer: {}}
)");
  expect_preserved<Deployment>(R"(
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: default}
spec:
  replicas: 0
  selector: {matchLabels: {a: b}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}], dnsPolicy: Default}}
status: {observedGeneration: 3, replicas: 2, terminatingReplicas: 1, conditions: [{type: Available, status: "True", lastUpdateTime: x}]}
)");
  expect_preserved<Endpoints>(R"(
apiVersion: v1
kind: Endpoints
metadata: {name: s, namespace: default}
subsets: [{addresses: [{ip: 127.0.0.2, targetRef: {kind: Pod}, hostname: h}], ports: [{port: 80, protocol: TCP}]}]
)");
  expect_preserved<EndpointSlice>(R"(
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s-abc, namespace: default, labels: {kubernetes.io/service-name: s}}
addressType: IPv4
endpoints: [{addresses: [127.0.0.2], conditions: {ready: false, terminating: true}, nodeName: node1, targetRef: {kind: Pod}, zone: z}]
ports: [{name: http, port: 80, protocol: TCP, appProtocol: http}]
)");
  expect_preserved<Event>(R"(
apiVersion: v1
kind: Event
metadata: {name: e, namespace: default}
involvedObject: {kind: Pod, name: web, namespace: default}
type: Warning
reason: Failed
message: it did
count: 2
source: {component: agent}
series: {count: 2}
)");
  expect_preserved<EdgeNode>(R"(
apiVersion: edgeai.io/v1alpha1
kind: EdgeNode
metadata: {name: edge0}
spec: {models: [{key: default/a, versions: [{version: "3", url: http://x, sha256: ab}], future: 1}], later: []}
status: {address: 127.9.1.1, models: [{key: default/a, exposed: "3", serving: {version: "3", state: Ready}}]}
)");
}

TEST(CoreKinds, WholeNumberWithFractionIsReadAsInteger) {
  EXPECT_EQ(Deployment::from_json(yaml("{spec: {replicas: 2.0}}"))->spec.replicas, 2);
  EXPECT_EQ(Deployment::from_json(yaml("{spec: {replicas: 2.5}}")).error().code(), Code::kInvalid);
}

TEST(CoreCondition, TransitionTimeMovesWithTheStatusOnly) {
  std::vector<CoreCondition> conditions;
  EXPECT_TRUE(set_condition(conditions, {"Ready", "True", "A", "", "", {}}, "t1"));
  EXPECT_FALSE(set_condition(conditions, {"Ready", "True", "A", "", "", {}}, "t2"));
  EXPECT_TRUE(set_condition(conditions, {"Ready", "True", "B", "", "", {}}, "t3"));
  EXPECT_EQ(conditions[0].last_transition_time, "t1");
  EXPECT_TRUE(set_condition(conditions, {"Ready", "False", "B", "", "", {}}, "t4"));
  EXPECT_EQ(conditions[0].last_transition_time, "t4");
  EXPECT_EQ(conditions.size(), 1u);
}

}  // namespace
}  // namespace varda::api
