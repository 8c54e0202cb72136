// The members of Worker, as the kinds of sedna.io describe them. For the .cc files of the kinds alone.
#pragma once

#include "api/describe.h"
#include "api/rule.h"
#include "api/sedna/pod_shape.h"
#include "api/sedna/worker.h"

namespace varda::api {

namespace detail {
/// At most one spelling of the template, one place for the node, replicas that nodeName or selector allow.
std::vector<Rule> worker_rules();
/// A worker at the edge stands somewhere: our operator binds its pods, no scheduler does.
std::vector<Rule> edge_worker_rules();
/// Without a template: hardExampleMining is a policy of our server.
std::vector<Rule> edge_policy_rules();
/// A worker in the cloud layer is a Deployment, or an InferenceModel without a template.
std::vector<Rule> cloud_worker_rules();
}  // namespace detail

/// model, nodeName, selector, replicas, workerSpec, template, and the rules between them.
template <typename W>
void describe_worker(Type<W>& t, std::int64_t replicas_max) {
  t.template field<ModelReference>("model", &Worker::model, "The model it works with.").required();
  t.template field<std::string>("nodeName", &Worker::node_name, "Name of the node it runs on.")
      .length(0, 253)
      .pattern("^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$");
  t.template field<std::optional<NodeSelection>>("selector", &Worker::selector,
                                                 "The nodes it runs on, by their labels, instead of nodeName.");
  t.template field<std::int64_t>("replicas", &Worker::replicas, "How many there are. 0 stops it.")
      .defaulted()
      .format("int32")
      .range(0, replicas_max);
  t.template field<Json>("workerSpec", &Worker::worker_spec, "The worker's pod: a PodSpec, with nodeName or selector beside it.")
      .shaped(pod_spec_shape());
  t.template field<Json>("template", &Worker::pod_template,
                         "The worker's pod as a template, {metadata, spec}: the other spelling of workerSpec.")
      .shaped(pod_template_shape());
  t.template field<std::optional<WorkerAutoscaling>>(
      "hpa", &Worker::hpa, "Of a cloud worker with a pod: replicas follow its load, by a HorizontalPodAutoscaler of the cluster.");
  for (Rule& rule : detail::worker_rules()) t.rule(std::move(rule));
}

}  // namespace varda::api
