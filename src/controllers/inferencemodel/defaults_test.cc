// A real API server returns more than it was given. Its additions must not count as differences, or
// they are written forever.
//
// The defaults below are those that kube-apiserver 1.36 put into objects of this operator (its
// answers, compared with the requests).

#include <gtest/gtest.h>

#include "codec/yaml.h"
#include "controllers/testing/golden.h"
#include "meta/patch.h"

namespace varda::controllers::inferencemodel {
namespace defaults_test {

using codec::Json;

void put(Json& object, std::string_view name, Json value) {
  if (!object.contains(name)) object.set(name, std::move(value));
}

void default_container(Json& container, bool host_network) {
  put(container, "terminationMessagePath", "/dev/termination-log");
  put(container, "terminationMessagePolicy", "File");
  put(container, "imagePullPolicy", "IfNotPresent");
  put(container, "resources", Json::object());
  // Limits are the defaults of missing requests.
  const Json limits = std::as_const(container)["resources"]["limits"];
  for (const auto& [name, amount] : limits.as_object())
    put(container["resources"]["requests"], name, amount);
  if (Json* probe = container.find("readinessProbe")) put(*probe, "successThreshold", 1);
  if (Json* ports = container.find("ports"); ports != nullptr && host_network) {
    for (Json& port : ports->array_items())
      put(port, "hostPort", std::as_const(port)["containerPort"]);
  }
}

void default_pod(Json& spec) {
  const bool host_network = std::as_const(spec)["hostNetwork"].as_bool();
  for (const char* list : {"initContainers", "containers"}) {
    if (Json* containers = spec.find(list)) {
      for (Json& container : containers->array_items()) default_container(container, host_network);
    }
  }
  if (Json* volumes = spec.find("volumes")) {
    for (Json& volume : volumes->array_items()) {
      if (Json* secret = volume.find("secret")) put(*secret, "defaultMode", 420);
    }
  }
  put(spec, "restartPolicy", "Always");
  put(spec, "terminationGracePeriodSeconds", 30);
  put(spec, "dnsPolicy", "ClusterFirst");
  put(spec, "securityContext", Json::object());
  put(spec, "schedulerName", "default-scheduler");
}

Json as_stored(Json object) {
  const std::string kind = std::as_const(object)["kind"].as_string();
  object["metadata"].set("uid", "1f");
  object["metadata"].set("resourceVersion", "7");
  object.make("metadata/annotations").set("deployment.kubernetes.io/revision", "1");
  Json& spec = object["spec"];
  if (kind == "Deployment") {
    default_pod(spec["template"]["spec"]);
    spec["template"]["metadata"].set("creationTimestamp", Json());
    put(spec, "revisionHistoryLimit", 10);
    put(spec, "progressDeadlineSeconds", 600);
  } else if (kind == "Service") {
    for (Json& port : spec["ports"].array_items()) port.set("nodePort", 30123);
    spec.set("clusterIP", "10.96.0.7");
    spec.set("clusterIPs", Json::array({"10.96.0.7"}));
    spec.set("sessionAffinity", "None");
    spec.set("externalTrafficPolicy", "Cluster");
    spec.set("internalTrafficPolicy", "Cluster");
    spec.set("ipFamilies", Json::array({"IPv4"}));
    spec.set("ipFamilyPolicy", "SingleStack");
    spec.set("allocateLoadBalancerNodePorts", true);
  } else {
    default_pod(spec);
    // Additions of admission and the scheduler.
    spec.set("nodeName", "edge0");
    spec.set("serviceAccountName", "default");
    spec.set("serviceAccount", "default");
    spec.set("priority", 0);
    spec.set("preemptionPolicy", "PreemptLowerPriority");
    spec["volumes"].push_back(
        Json::object({{"name", "kube-api-access-x"}, {"projected", Json::object()}}));
    for (Json& container : spec["containers"].array_items()) {
      container["volumeMounts"].push_back(
          Json::object({{"name", "kube-api-access-x"}, {"mountPath", "/var/run/secrets"}}));
    }
  }
  object.set("status", Json::object());
  return object;
}

class ApiServerDefaults : public ::testing::TestWithParam<std::string> {};

TEST_P(ApiServerDefaults, DefaultsCauseNoDifferenceToThePlan) {
  const auto& test = testing::golden_cases("inferencemodel").at(GetParam());
  for (Json wanted : test.expect["objects"].as_array()) {
    wanted["metadata"].erase("uid");  // identifies the object, and is not written
    const Json live = as_stored(wanted);
    const Json merged = meta::three_way_merge(wanted, wanted, live, meta::core_list_keys);
    EXPECT_EQ(merged, live) << codec::write_yaml(meta::make_merge_patch(live, merged));
  }
}

INSTANTIATE_TEST_SUITE_P(Case, ApiServerDefaults,
                         ::testing::ValuesIn(testing::golden_cases("inferencemodel").names()),
                         [](const auto& test) { return test.param; });

}  // namespace defaults_test
}  // namespace varda::controllers::inferencemodel
