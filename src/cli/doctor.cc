#include "cli/doctor.h"

#include <algorithm>

#include "meta/object.h"
#include "meta/resources.h"

namespace varda::cli {
namespace {

constexpr const char* kSystem = "varda-system";
constexpr const char* kOperator = "varda-operator";  // namespace, Deployment and Lease
const meta::Resource kEdgeNodes{"edgeai.io", "v1alpha1", "EdgeNode", "edgenodes", false};
const meta::Resource kModels{"ai.kubeedge.io", "v1alpha1", "InferenceModel", "inferencemodels",
                             true};
const meta::Resource kJointServices{"sedna.io", "v1alpha1", "JointInferenceService",
                                    "jointinferenceservices", true};

// Permissions of a user that deploys and maintains models.
constexpr struct {
  const char *verb, *group, *resource;
} kNeeded[] = {{"create", "ai.kubeedge.io", "inferencemodels"},
               {"patch", "ai.kubeedge.io", "inferencemodels"},
               {"delete", "ai.kubeedge.io", "inferencemodels"},
               {"create", "edgeai.io", "datasets"},
               {"create", "edgeai.io", "models"},
               {"list", "edgeai.io", "edgenodes"},
               {"list", "", "nodes"},
               {"list", "", "pods"},
               {"list", "", "events"}};

Seen look(const Context& ctx, Session& session, const meta::Resource& resource,
          const std::string& ns, const std::string& name) {
  auto found = session.client.find(ctx, resource, {ns, name});
  if (!found.ok()) return {std::nullopt, found.error().message()};
  return {std::move(found).value(), ""};
}

SeenList list_all(const Context& ctx, Session& session, const meta::Resource& resource) {
  auto found = session.client.list_all(ctx, resource);
  // The CRD check reports missing kinds.
  if (!found.ok())
    return {{}, found.error().code() == Code::kNotFound ? "" : found.error().message()};
  return {std::move(found->items), ""};
}

// Looks in varda-operator, then in varda-system; defaults to varda-operator.
void find_operator(const Context& ctx, Session& session, Examined& seen) {
  for (const char* ns : {kOperator, kSystem, kOperator}) {
    seen.operator_namespace = ns;
    seen.lease = look(ctx, session, meta::core::leases(), ns, kOperator);
    seen.operator_deployment = look(ctx, session, meta::core::deployments(), ns, kOperator);
    if (seen.lease.object || seen.operator_deployment.object) return;
  }
}

// Reason from a 503 text response; other responses give no reason.
std::string why_unready(const Context& ctx, Session& session) {
  constexpr std::string_view kUnready = "HTTP status 503: ";
  const auto answer = session.client.text(ctx, "/readyz");
  if (answer.ok()) return "";
  const std::string& message = answer.error().message();
  const std::size_t at = message.find(kUnready);
  return at == std::string::npos ? "" : message.substr(at + kUnready.size());
}

std::optional<bool> may(const Context& ctx, Session& session, const Permission& what) {
  const Json attributes = Json::object({{"verb", what.verb},
                                        {"group", what.group},
                                        {"resource", what.resource},
                                        {"namespace", session.ns}});
  const Json review = Json::object({{"apiVersion", "authorization.k8s.io/v1"},
                                    {"kind", "SelfSubjectAccessReview"},
                                    {"spec", Json::object({{"resourceAttributes", attributes}})}});
  const auto answer = session.client.json(
      ctx, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review);
  if (!answer.ok()) return std::nullopt;
  return answer->at("status/allowed").as_bool();
}

const Json* condition(const Json& object, std::string_view type) {
  for (const Json& c : object.at("status/conditions").as_array()) {
    if (c["type"].as_string() == type) return &c;
  }
  return nullptr;
}

bool is_true(const Json* condition) {
  return condition != nullptr && (*condition)["status"].as_string() == "True";
}

std::string because(const Json* c) {
  if (c == nullptr) return "no report yet";
  return (*c)["reason"].as_string() +
         ((*c)["message"].as_string().empty() ? "" : ": " + (*c)["message"].as_string());
}

int leading_number(const std::string& text) {
  int number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || number > 9999) break;
    number = number * 10 + (c - '0');
  }
  return number;
}

// Removes validation rules, because old API servers do not store them.
void drop_rules(Json& schema) {
  if (schema.is_array()) {
    for (Json& item : schema.array_items()) drop_rules(item);
  }
  if (!schema.is_object()) return;
  schema.erase("x-kubernetes-validations");
  for (auto& [name, member] : schema.object_members()) drop_rules(member);
}

// Compares numbers as doubles, because API servers store limits as doubles: 2^60 becomes
// 1152921504606847000.
bool alike(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (a.type() != b.type() || a.size() != b.size()) return false;
  if (a.is_array()) {
    return std::equal(a.as_array().begin(), a.as_array().end(), b.as_array().begin(), alike);
  }
  if (!a.is_object()) return a == b;
  return std::all_of(a.as_object().begin(), a.as_object().end(), [&](const Json::Member& member) {
    const Json* other = b.find(member.first);
    return other != nullptr && alike(member.second, *other);
  });
}

/// The schema of the used version; null if it is not served.
Json schema_of(const Json& crd, const std::string& version) {
  for (const Json& one : crd.at("spec/versions").as_array()) {
    if (one["name"].as_string() == version && one["served"].as_bool())
      return one.at("schema/openAPIV3Schema");
  }
  return nullptr;
}

class Diagnosis {
 public:
  Diagnosis(const Examined& seen, const DoctorOptions& options) : seen_(seen), options_(options) {}

  std::vector<Finding> make() {
    if (!server()) return std::move(found_);
    kinds();
    permissions();
    // On one machine, operator and gateway are parts of `varda up`. It answers, so they run.
    if (!one_machine_) {
      leader();
      deployment("operator", seen_.operator_deployment, seen_.operator_namespace, kOperator);
      gateway();
    }
    probe();
    nodes();
    agents();
    models();
    joint_services();
    return std::move(found_);
  }

 private:
  using Level = Finding::Level;
  void add(Level level, std::string where, std::string what, std::string advice = "") {
    found_.push_back({level, std::move(where), std::move(what), std::move(advice)});
  }
  void unread(const std::string& where, const std::string& error) {
    add(Level::kUnknown, where, "not checked: " + error,
        "run `varda doctor` as a user with read permission");
  }
  std::string install() const {
    return one_machine_ ? "restart `varda up`, which installs them"
                        : "kubectl apply -f deploy/varda.yaml";
  }

  // True if the certificate is expired or not yet valid: a wrong clock, or a certificate that
  // `varda up` did not renew.
  bool refused_for_dates() const {
    const auto message_contains = [this](const char* text) {
      return seen_.version.error.find(text) != std::string::npos;
    };
    return message_contains("certificate has expired") ||
           message_contains("certificate is not yet valid");
  }

  bool server() {
    if (!seen_.version.object && refused_for_dates()) {
      add(Level::kBad, "server",
          "has a certificate that is not valid at this machine's time: " + seen_.version.error,
          "this machine's clock says " + meta::format_time(seen_.now) +
              ": set it if that is wrong; else start `varda up` again, which renews the "
              "certificates in pki/ of its data "
              "directory");
      return false;
    }
    if (!seen_.version.object) {
      add(Level::kBad, "server", "does not answer: " + seen_.version.error,
          "start one with `varda up`, or check --kubeconfig and $KUBECONFIG");
      return false;
    }
    const Json& version = *seen_.version.object;
    const std::string name = version["gitVersion"].as_string();
    const std::size_t build = name.find("+varda.");
    one_machine_ = build != std::string::npos;
    if (!seen_.refused.empty()) {
      add(Level::kBad, "server",
          "does not accept the credentials of the kubeconfig: " + seen_.refused,
          one_machine_ ? "the token may have expired: `varda token --list` shows it, `varda token "
                         "--rotate varda-admin` replaces it"
                       : "the token or the certificate may have expired: get another kubeconfig "
                         "from the administrator");
      return false;
    }
    if (one_machine_ && name.substr(build + 7) != options_.version) {
      add(Level::kNote, "server",
          "is that of varda " + name.substr(build + 7) + ", this is " + options_.version,
          "use the program that `varda up` was started with, or start it again with this one");
    } else if (leading_number(version["major"].as_string()) == 1 &&
               leading_number(version["minor"].as_string()) < 27) {
      add(Level::kNote, "server", "is version " + name + "; Varda needs 1.27 or newer",
          "upgrade the server; until then only the operator checks rules across fields, and "
          "reports violations in conditions");
    } else {
      add(Level::kGood, "server", "answers, version " + name);
    }
    if (!seen_.unready.empty()) {
      add(Level::kBad, "server", "is not ready: " + seen_.unready,
          seen_.unready.find("is full") != std::string::npos
              ? "free some space on that disk, or delete objects; until then the server rejects "
                "new objects"
              : "check the server's log");
    }
    return true;
  }

  void kinds() {
    for (std::size_t i = 0; i < options_.crds.size() && i < seen_.crds.size(); ++i) {
      const Json& expected = options_.crds[i];
      const Seen& actual = seen_.crds[i];
      const std::string where = "CRD " + expected.at("metadata/name").as_string();
      const std::string version = expected.at("spec/versions/0/name").as_string();
      if (!actual.error.empty()) {
        unread(where, actual.error);
      } else if (!actual.object) {
        add(Level::kBad, where, "is not installed", install());
      } else if (!is_true(condition(*actual.object, "Established"))) {
        add(Level::kBad, where,
            "is not established (" + because(condition(*actual.object, "Established")) + ")",
            "another CRD may use the same names: kubectl describe crd " +
                expected.at("metadata/name").as_string());
      } else if (!same_schema(expected, *actual.object, version)) {
        add(Level::kNote, where, "is of another release than this program",
            "apply the CRDs of the release that the operator has: kubectl apply -f deploy/crds");
      } else {
        add(Level::kGood, where, "is installed");
      }
    }
  }
  static bool same_schema(const Json& expected, const Json& actual, const std::string& version) {
    Json wanted = schema_of(expected, version), found = schema_of(actual, version);
    if (alike(wanted, found)) return true;
    drop_rules(wanted);
    return alike(wanted, found);
  }

  void permissions() {
    std::string missing;
    bool reported = false;
    for (const Permission& one : seen_.permissions) {
      reported = reported || one.allowed.has_value();
      if (one.allowed.value_or(true)) continue;
      missing += (missing.empty() ? "" : ", ") + one.verb + " " + one.resource +
                 (one.group.empty() ? "" : "." + one.group);
    }
    if (!reported) {
      add(Level::kUnknown, "permissions",
          "not checked: the server did not answer the permission review",
          "kubectl auth can-i --list");
    } else if (!missing.empty()) {
      add(Level::kNote, "permissions", "you may not " + missing,
          "ask an administrator for a role with these verbs if you deploy models to this cluster");
    } else {
      add(Level::kGood, "permissions", "you may create, change and watch models");
    }
  }

  void leader() {
    const std::string where = "Lease " + seen_.operator_namespace + "/" + kOperator;
    if (!seen_.lease.error.empty()) return unread(where, seen_.lease.error);
    if (!seen_.lease.object) {
      return add(Level::kBad, where,
                 "does not exist: no operator runs, or no operator has become leader yet",
                 "kubectl apply -f deploy/varda.yaml");
    }
    const Json& spec = (*seen_.lease.object)["spec"];
    const std::string holder = spec["holderIdentity"].as_string();
    const auto renewed = meta::parse_time(spec["renewTime"].as_string());
    const std::chrono::seconds duration(spec["leaseDurationSeconds"].as_integer(15));
    const std::string advice =
        "kubectl get pods -n " + seen_.operator_namespace + ", then check the operator's log";
    // Twice the duration, because the local clock may differ from the operator's.
    if (holder.empty() || !renewed.ok()) return add(Level::kBad, where, "has no holder", advice);
    if (seen_.now - *renewed > 2 * duration)
      return add(Level::kBad, where,
                 "was last renewed by " + holder + " at " + spec["renewTime"].as_string(), advice);
    add(Level::kGood, where, "is held by " + holder);
  }

  void deployment(const std::string& what, const Seen& seen, const std::string& ns,
                  const std::string& name) {
    const std::string where = "Deployment " + ns + "/" + name,
                      describe = "kubectl describe pods -n " + ns;
    if (!seen.error.empty()) return unread(where, seen.error);
    if (!seen.object)
      return add(Level::kNote, where, "does not exist",
                 "kubectl apply -f deploy/varda.yaml, unless the " + what + " runs elsewhere");
    const std::int64_t available = seen.object->at("status/availableReplicas").as_integer();
    const std::int64_t wanted = seen.object->at("spec/replicas").as_integer(1);
    if (available == 0) return add(Level::kBad, where, "has no available pod", describe);
    if (available < wanted)
      return add(Level::kNote, where,
                 "has " + std::to_string(available) + " of " + std::to_string(wanted) + " pods",
                 describe);
    add(Level::kGood, where, "is available");
  }

  void gateway() {
    deployment("gateway", seen_.gateway_deployment, kSystem, "varda-gateway");
    const std::string service = "Service varda-system/varda-gateway",
                      authority = "ConfigMap varda-system/varda-gateway";
    if (!seen_.gateway_service.error.empty()) {
      unread(service, seen_.gateway_service.error);
    } else if (!seen_.gateway_service.object) {
      add(Level::kNote, service, "does not exist",
          "agents need this Service, or another address of the gateway: kubectl apply -f "
          "deploy/varda.yaml");
    } else {
      add(Level::kGood, service, "exists");
    }
    if (!seen_.gateway_config.error.empty()) {
      unread(authority, seen_.gateway_config.error);
    } else if (!seen_.gateway_config.object && !seen_.gateway_deployment.object) {
      add(Level::kNote, authority, "does not exist: without a gateway no edge node can enrol",
          "kubectl apply -f deploy/varda.yaml");
    } else if (!seen_.gateway_config.object ||
               seen_.gateway_config.object->at("data").find("ca.crt") == nullptr) {
      add(Level::kBad, authority, "has no ca.crt: no gateway has started yet, so no node can enrol",
          "check the gateway's log: kubectl logs -n varda-system deployment/varda-gateway");
    } else {
      add(Level::kGood, authority, "has the authority of the edge");
    }
  }

  void probe() {
    if (!seen_.gateway_trouble) return;
    const std::string where = "gateway " + seen_.gateway_url;
    if (seen_.gateway_trouble->empty()) return add(Level::kGood, where, "answers");
    add(Level::kBad, where, "does not answer: " + *seen_.gateway_trouble,
        "check the address and the firewalls; a certificate of another authority belongs to "
        "another gateway");
  }

  void nodes() {
    if (!seen_.nodes.error.empty()) return unread("nodes", seen_.nodes.error);
    if (seen_.nodes.items.empty())
      add(Level::kBad, "cluster", "has no nodes",
          "`varda up --node NAME=edge` starts one; on a cluster, join one");
    for (const Json& node : seen_.nodes.items) {
      const std::string name = node.at("metadata/name").as_string();
      const Json* ready = condition(node, "Ready");
      const Json& labels = node.at("metadata/labels");
      // Node labels in the selector of the agents' DaemonSet.
      const bool edge = labels.find("node-role.kubernetes.io/edge") != nullptr ||
                        labels.find("edgeai.io/agent") != nullptr;
      if (is_true(ready)) {
        add(Level::kGood, "node " + name, "is ready");
      } else {
        add(Level::kBad, "node " + name, "is not ready (" + because(ready) + ")",
            one_machine_ ? agent_log(name) : "kubectl describe node " + name);
      }
      if (edge && seen_.edge_nodes.error.empty() && !has_agent(name)) {
        add(Level::kBad, "node " + name, "has no enrolled agent, so it gets no models",
            one_machine_ ? agent_log(name)
                         : "kubectl get pods -n varda-edge -o wide, then check the log of the "
                           "agent on the node");
      }
    }
  }
  /// A one-machine server has nodes started by `varda up` and nodes that joined at its gateway. The
  /// server cannot distinguish them.
  static std::string agent_log(const std::string& node) {
    return "check the agent's log: DATA-DIR/nodes/" + node +
           "/agent.log of `varda up`, or standard error of a `varda agent`; " +
           "`varda delete edgenode/" + node + " node/" + node +
           "` removes a node that no longer exists";
  }
  bool has_agent(const std::string& node) const {
    for (const Json& agent : seen_.edge_nodes.items) {
      if (agent.at("metadata/name").as_string() == node) return true;
    }
    return false;
  }

  void agents() {
    if (!seen_.edge_nodes.error.empty()) return unread("edge nodes", seen_.edge_nodes.error);
    for (const Json& agent : seen_.edge_nodes.items) {
      const std::string where = "agent of " + agent.at("metadata/name").as_string();
      const Json* connected = condition(agent, "Connected");
      const std::string last_seen = agent.at("status/lastSeen").as_string();
      if (is_true(connected)) {
        add(Level::kGood, where, "is connected");
      } else {
        add(connected == nullptr ? Level::kNote : Level::kBad, where,
            "is not connected (" + because(connected) + ")" +
                (last_seen.empty() ? "" : ", last seen " + last_seen),
            "models on the node keep serving; check the agent's log and the connection to the "
            "gateway (varda doctor --gateway "
            "URL)");
      }
      const std::string version = agent.at("status/agentVersion").as_string();
      if (version != options_.version && !(version.empty() && connected == nullptr)) {
        add(Level::kNote, where,
            "is version " + (version.empty() ? "unknown" : version) + ", this is " +
                options_.version,
            "restart it with the new program");
      }
      disk(where, agent);
    }
  }

  void disk(const std::string& where, const Json& agent) {
    const std::int64_t left = agent.at("status/disk/availableBytes").as_integer(-1);
    const std::string summary = agent.at("status/summary/disk").as_string();
    const std::string advice =
        "remove old versions from manifests, or free space on the disk of the agent's data "
        "directory";
    if (left >= 0 && summary.starts_with("full")) {
      add(Level::kBad, where, "cannot install anything: its disk is " + summary, advice);
    } else if (left >= 0 && left < (std::int64_t{1} << 30)) {
      add(Level::kNote, where,
          "has less than 1 GiB of disk left" + (summary.empty() ? "" : " (" + summary + ")"),
          advice);
    }
  }

  void models() {
    if (!seen_.models.error.empty()) return unread("models", seen_.models.error);
    for (const Json& model : seen_.models.items) {
      const std::string ns = model.at("metadata/namespace").as_string(),
                        name = model.at("metadata/name").as_string();
      const Json* ready = condition(model, "Ready");
      const Json& failure = model.at("status/modelStatus/lastFailure");
      const std::string& target =
          model
              .at(model["spec"].contains("modelRef") ? "status/modelStatus/target"
                                                     : "spec/targetVersion")
              .as_string();
      if (is_true(ready) && failure.is_object() && failure["version"].as_string() == target) {
        add(Level::kBad, "model " + ns + "/" + name,
            "serves version " + model.at("status/servingVersion").as_string() +
                ", and not version " + target + " (" + failure["reason"].as_string() + ": " +
                failure["message"].as_string() + ")",
            "varda describe inferencemodel " + name + " -n " + ns);
      } else if (is_true(ready)) {
        add(Level::kGood, "model " + ns + "/" + name,
            "serves version " + model.at("status/servingVersion").string_or("of its image"));
      } else {
        add(Level::kBad, "model " + ns + "/" + name, "is not ready (" + because(ready) + ")",
            "varda describe inferencemodel " + name + " -n " + ns);
      }
    }
  }

  /// A service that answers is not a problem, even if a tier is missing or a change was not
  /// followed; it gets a note.
  void joint_services() {
    if (!seen_.joint_services.error.empty())
      return unread("joint inference services", seen_.joint_services.error);
    for (const Json& service : seen_.joint_services.items) {
      const std::string ns = service.at("metadata/namespace").as_string(),
                        name = service.at("metadata/name").as_string();
      const std::string where = "joint service " + ns + "/" + name,
                        advice = "varda describe jis " + name + " -n " + ns;
      const Json* ready = condition(service, "Ready");
      if (!is_true(ready)) {
        const bool unknown = ready != nullptr && (*ready)["status"].as_string() == "Unknown";
        add(unknown ? Level::kNote : Level::kBad, where,
            (unknown ? "has an unknown state (" : "is not ready (") + because(ready) + ")", advice);
        continue;
      }
      if (const Json* degraded = condition(service, "Degraded"); is_true(degraded)) {
        add(Level::kNote, where, "answers without one of its tiers (" + because(degraded) + ")",
            advice);
        continue;
      }
      const Json* wrong = nullptr;
      for (const char* type : {"CloudReady", "EdgeReady"})
        if (const Json* one = condition(service, type); one != nullptr && !is_true(one))
          wrong = one;
      if (wrong != nullptr) {
        add(Level::kNote, where, "answers, but not with its current spec (" + because(wrong) + ")",
            advice);
      } else {
        add(Level::kGood, where, "answers at " + service.at("status/url").as_string());
      }
    }
  }

  const Examined& seen_;
  const DoctorOptions& options_;
  bool one_machine_ = false;
  std::vector<Finding> found_;
};

std::string_view level_name(Finding::Level level) {
  switch (level) {
    case Finding::Level::kGood:
      return "ok";
    case Finding::Level::kNote:
      return "note";
    case Finding::Level::kUnknown:
      return "unknown";
    case Finding::Level::kBad:
      return "problem";
  }
  return "problem";
}

Json to_json(const std::vector<Finding>& findings, int problems) {
  Json list = Json::array();
  for (const Finding& one : findings) {
    Json entry =
        Json::object({{"level", level_name(one.level)}, {"where", one.where}, {"what", one.what}});
    if (!one.advice.empty()) entry.set("advice", one.advice);
    list.push_back(std::move(entry));
  }
  return Json::object({{"problems", problems}, {"findings", std::move(list)}});
}

}  // namespace

Examined examine(const Context& ctx, Session& session, const DoctorOptions& options) {
  Examined seen;
  seen.now = options.now;
  auto version = session.client.json(ctx, "GET", "/version");
  if (!version.ok()) {
    seen.version.error = version.error().message();
    return seen;
  }
  seen.version.object = std::move(version).value();
  // Every server answers /version; /apis needs a known user.
  if (const auto apis = session.client.json(ctx, "GET", "/apis");
      !apis.ok() && apis.error().code() == Code::kUnauthenticated) {
    seen.refused = apis.error().message();
    return seen;
  }
  seen.unready = why_unready(ctx, session);
  for (const Json& crd : options.crds)
    seen.crds.push_back(
        look(ctx, session, meta::core::definitions(), "", crd.at("metadata/name").as_string()));
  for (const auto& needed : kNeeded) {
    Permission one{needed.verb, needed.group, needed.resource, std::nullopt};
    one.allowed = may(ctx, session, one);
    seen.permissions.push_back(std::move(one));
  }
  find_operator(ctx, session, seen);
  seen.gateway_deployment = look(ctx, session, meta::core::deployments(), kSystem, "varda-gateway");
  seen.gateway_service = look(ctx, session, meta::core::services(), kSystem, "varda-gateway");
  seen.gateway_config = look(ctx, session, meta::core::config_maps(), kSystem, "varda-gateway");
  seen.nodes = list_all(ctx, session, meta::core::nodes());
  seen.edge_nodes = list_all(ctx, session, kEdgeNodes);
  seen.models = list_all(ctx, session, kModels);
  seen.joint_services = list_all(ctx, session, kJointServices);
  if (!options.gateway_url.empty() && options.try_gateway) {
    seen.gateway_url = options.gateway_url;
    const std::string ca = seen.gateway_config.object
                               ? seen.gateway_config.object->at("data")["ca.crt"].as_string()
                               : "";
    const Status tried = options.try_gateway(ctx, options.gateway_url, ca);
    seen.gateway_trouble = tried.ok() ? "" : tried.error().message();
  }
  return seen;
}

std::vector<Finding> diagnose(const Examined& examined, const DoctorOptions& options) {
  return Diagnosis(examined, options).make();
}

Status doctor(const Context& ctx, Session& session, const DoctorOptions& options) {
  const std::vector<Finding> findings = diagnose(examine(ctx, session, options), options);
  int problems = 0;
  for (const Finding& one : findings) problems += one.level == Finding::Level::kBad ? 1 : 0;
  if (options.output.form == Output::Form::kJson) {
    session.out(codec::write_json_pretty(to_json(findings, problems), 2) + "\n");
  } else {
    for (const Finding& one : findings) {
      const char* mark = one.level == Finding::Level::kGood  ? "ok    "
                         : one.level == Finding::Level::kBad ? "BAD   "
                                                             : "note  ";
      session.out(mark + harmless(one.where + " " + one.what) + "\n");
      if (!one.advice.empty()) session.out("      -> " + harmless(one.advice) + "\n");
    }
  }
  if (problems == 0) return {};
  return Error(Code::kUnavailable,
               std::to_string(problems) + (problems == 1 ? " problem found" : " problems found"));
}

}  // namespace varda::cli
