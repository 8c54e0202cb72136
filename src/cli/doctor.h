// `varda doctor`: what an installation looks like from outside, and what to do about it.
//
// examine() asks the server and keeps what it said; diagnose() judges that, with no further question. Nothing is written.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "cli/printer.h"
#include "cli/session.h"

namespace varda::cli {

struct Finding {
  enum class Level { kGood, kNote, kUnknown, kBad };  // kUnknown: could not be asked, which is nobody's fault
  Level level = Level::kGood;
  std::string where;   // "server", "CustomResourceDefinition models.edgeai.io", "node edge0"
  std::string what;    // "is ready"
  std::string advice;  // what to do; "" for kGood
};

/// What an answer was: the object; nothing, where there is none; or why it could not be asked.
struct Seen {
  std::optional<Json> object;
  std::string error;
};

/// A list of objects, or why there is none.
struct SeenList {
  std::vector<Json> items;
  std::string error;
};

struct Permission {
  std::string verb, group, resource;  // resource "nodes"
  std::optional<bool> allowed;        // nothing: the server does not say
};

/// What one look at a server finds.
struct Examined {
  Seen version;            // error: the server does not answer, and the rest is empty
  std::string unready;     // why the server says that it is not ready; "": it is, or does not say
  std::vector<Seen> crds;  // in the order of DoctorOptions::crds
  std::vector<Permission> permissions;
  std::string operator_namespace = "varda-operator";  // where the next two are, or would be
  Seen lease, operator_deployment, gateway_deployment, gateway_service, gateway_config;
  SeenList nodes, edge_nodes, models, joint_services;
  std::string gateway_url;                     // "": not tried
  std::optional<std::string> gateway_trouble;  // of trying it; "": it answers
  WallTime now{};
};

struct DoctorOptions {
  Output output;            // human-readable, or -o json
  std::string version;      // of this program
  std::vector<Json> crds;   // that this program works with
  std::string gateway_url;  // "https://host:30443"; "": is not tried
  WallTime now{};
  /// Whether a gateway answers there with a certificate that the authority (PEM) has signed. Blocks for seconds at most.
  std::function<Status(const Context& ctx, const std::string& url, const std::string& ca_pem)> try_gateway;
};

Examined examine(const Context& ctx, Session& session, const DoctorOptions& options);

/// What is right and wrong, in the order in which people would look: server, kinds, permissions, operator, gateway, nodes, models,
/// joint inference services.
std::vector<Finding> diagnose(const Examined& examined, const DoctorOptions& options);

/// Prints the findings. kUnavailable when any is bad: "2 problems found".
Status doctor(const Context& ctx, Session& session, const DoctorOptions& options);

}  // namespace varda::cli
