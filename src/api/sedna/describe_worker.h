// Descriptions of Worker's members, for kinds of sedna.io. Only .cc files of those kinds include
// this header.
#pragma once

#include "api/ai/describe_pod_settings.h"
#include "api/describe.h"
#include "api/rule.h"
#include "api/sedna/pod_shape.h"
#include "api/sedna/worker.h"

namespace varda::api {

namespace detail {
/// At most one form of the template, one place for the node, and replicas that nodeName or selector
/// allow.
std::vector<Rule> worker_rules();
/// Autoscaling needs a template.
Rule autoscaling_rule();
/// An edge worker needs a node, because the operator binds its pods without a scheduler.
std::vector<Rule> edge_worker_rules();
/// Without a template, hardExampleMining must be a policy of our server.
std::vector<Rule> edge_policy_rules();
/// A cloud worker is a Deployment, or without a template an InferenceModel.
std::vector<Rule> cloud_worker_rules();
}  // namespace detail

/// Describes nodeName and selector.
template <typename W>
void describe_worker_place(Type<W>& t) {
  t.template field<std::string>("nodeName", &Worker::node_name, "Name of the worker's node.")
      .length(0, 253)
      .pattern("^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$");
  t.template field<std::optional<NodeSelection>>(
      "selector", &Worker::selector, "Labels of the worker's nodes, instead of nodeName.");
}

template <typename W>
void describe_worker_replicas(Type<W>& t, std::string_view replicas_doc,
                              std::int64_t replicas_max) {
  t.template field<std::optional<std::int64_t>>("replicas", &Worker::replicas, replicas_doc)
      .format("int32")
      .range(0, replicas_max);
}

/// Describes workerSpec and template. `docs`: of both forms of the pod.
template <typename W>
void describe_worker_pod(Type<W>& t, PodText docs) {
  t.template field<Json>("workerSpec", &Worker::worker_spec,
                         "Pod of the worker: a PodSpec, or {metadata, spec}, with nodeName or "
                         "selector beside it.")
      .shaped(worker_spec_shape(docs));
  t.template field<Json>(
       "template", &Worker::pod_template,
       "Pod of the worker as a template, {metadata, spec}. Alternative to workerSpec.")
      .shaped(pod_template_shape(docs));
}

/// Describes model, place, replicas, pod, hpa, the settings of our server's pods, and their rules.
template <typename W>
void describe_worker(Type<W>& t, std::string_view replicas_doc, std::int64_t replicas_max,
                     PodText docs) {
  t.template field<ModelReference>("model", &Worker::model, "Model of the worker.").required();
  describe_worker_place(t);
  describe_worker_replicas(t, replicas_doc, replicas_max);
  describe_worker_pod(t, docs);
  t.template field<std::optional<WorkerAutoscaling>>(
      "hpa", &Worker::hpa,
      "Autoscaling of a cloud worker that has a pod, by a HorizontalPodAutoscaler of the cluster.");
  describe_pod_settings(t);
  for (Rule& rule : detail::worker_rules()) t.rule(std::move(rule));
  t.rule(detail::autoscaling_rule());
}

}  // namespace varda::api
