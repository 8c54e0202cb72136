#include "cli/verbs.h"
#include "meta/object.h"

namespace varda::cli {
namespace {

/// Prints one line a finding and remembers whether any was bad.
class Report {
 public:
  explicit Report(Session& session) : session_(session) {}
  void good(const std::string& what) { session_.out("ok    " + what + "\n"); }
  void note(const std::string& what, const std::string& advice) { session_.out("note  " + what + "\n      -> " + advice + "\n"); }
  void bad(const std::string& what, const std::string& advice) {
    ++problems_;
    session_.out("BAD   " + what + "\n      -> " + advice + "\n");
  }
  int problems() const { return problems_; }

 private:
  Session& session_;
  int problems_ = 0;
};

const Json* condition(const Json& object, std::string_view type) {
  for (const Json& c : object.at("status/conditions").as_array()) {
    if (c["type"].as_string() == type) return &c;
  }
  return nullptr;
}

std::string because(const Json* c) {
  if (!c) return "no word yet";
  return (*c)["reason"].as_string() + ((*c)["message"].as_string().empty() ? "" : ": " + (*c)["message"].as_string());
}

}  // namespace

Status doctor(const Context& ctx, Session& session) {
  Report report(session);
  auto version = session.client.json(ctx, "GET", "/version");
  if (!version.ok()) {
    report.bad("the API server does not answer: " + version.error().message(),
               "start one with `varda up`, or check --kubeconfig and $KUBECONFIG");
    return Error(Code::kUnavailable, "1 problem found");
  }
  report.good("the API server answers, version " + (*version)["gitVersion"].as_string());

  TRY(const kube::Discovery* discovery, session.discovery(ctx));
  for (const auto& [group, kind] :
       {std::pair("ai.kubeedge.io/v1alpha1", "InferenceModel"), std::pair("edgeai.io/v1alpha1", "EdgeNode")}) {
    if (discovery->of(group, kind).ok()) {
      report.good(std::string("the kind ") + kind + " is installed");
    } else {
      report.bad(std::string("the kind ") + kind + " is not installed", "apply deploy/crds, or use `varda up`, which does it");
    }
  }
  if (report.problems() > 0) return Error(Code::kUnavailable, std::to_string(report.problems()) + " problems found");

  static const meta::Resource kNodes{"", "v1", "Node", "nodes", false};
  static const meta::Resource kEdgeNodes{"edgeai.io", "v1alpha1", "EdgeNode", "edgenodes", false};
  static const meta::Resource kModels{"ai.kubeedge.io", "v1alpha1", "InferenceModel", "inferencemodels", true};
  TRY(const kube::List nodes, session.client.list_all(ctx, kNodes));
  if (nodes.items.empty())
    report.bad("there is no node", "`varda up --node NAME=edge` starts one; on a cluster, run `varda agent` there");
  for (const Json& node : nodes.items) {
    const std::string& name = node.at("metadata/name").as_string();
    const Json* ready = condition(node, "Ready");
    if (ready && (*ready)["status"].as_string() == "True") {
      report.good("node " + name + " is ready");
    } else {
      report.bad("node " + name + " is not ready (" + because(ready) + ")",
                 "look at its agent's log: nodes/" + name + "/agent.log below the data directory");
    }
  }
  TRY(const kube::List agents, session.client.list_all(ctx, kEdgeNodes));
  for (const Json& agent : agents.items) {
    const std::string& name = agent.at("metadata/name").as_string();
    const std::string& its_version = agent.at("status/agentVersion").as_string();
    if (its_version != VARDA_VERSION) {
      report.note(
          "the agent of " + name + " is version " + (its_version.empty() ? "unknown" : its_version) + ", this is " VARDA_VERSION,
          "restart it with the new program");
    }
    const std::int64_t free_bytes = agent.at("status/disk/availableBytes").as_integer(-1);
    if (free_bytes >= 0 && free_bytes < (std::int64_t{1} << 30)) {
      report.note("node " + name + " has less than 1 GiB of disk left", "remove old versions from manifests, or free space");
    }
  }
  TRY(const kube::List models, session.client.list_all(ctx, kModels));
  for (const Json& model : models.items) {
    const std::string name = model.at("metadata/namespace").as_string() + "/" + model.at("metadata/name").as_string();
    const Json* ready = condition(model, "Ready");
    if (ready && (*ready)["status"].as_string() == "True") {
      report.good("model " + name + " serves version " + model.at("status/servingVersion").string_or("of its image"));
    } else {
      report.bad("model " + name + " is not ready (" + because(ready) + ")", "varda describe inferencemodel " +
                                                                                 model.at("metadata/name").as_string() + " -n " +
                                                                                 model.at("metadata/namespace").as_string());
    }
  }
  if (report.problems() == 0) return {};
  return Error(Code::kUnavailable,
               std::to_string(report.problems()) + (report.problems() == 1 ? " problem found" : " problems found"));
}

}  // namespace varda::cli
