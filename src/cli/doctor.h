// `varda doctor`: diagnoses an installation from outside and gives advice.
//
// examine() queries the server and collects the answers; diagnose() judges these without further
// queries. Read-only.
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
  enum class Level {
    kGood,
    kNote,
    kUnknown,
    kBad
  };  // kUnknown: not checked, e.g. without permission
  Level level = Level::kGood;
  std::string where;   // "server", "CustomResourceDefinition models.edgeai.io", "node edge0"
  std::string what;    // "is ready"
  std::string advice;  // recommended action; "" for kGood
};

/// The answer to a query: the object, nullopt if absent, or an error.
struct Seen {
  std::optional<Json> object;
  std::string error;
};

/// A list of objects, or an error.
struct SeenList {
  std::vector<Json> items;
  std::string error;
};

struct Permission {
  std::string verb, group, resource;  // resource "nodes"
  std::optional<bool> allowed;        // nullopt: the server does not answer this
};

/// All facts that examine() collects.
struct Examined {
  Seen version;         // error: the server does not answer, and the rest is empty
  std::string refused;  // error: the server does not accept the credentials, and the rest is empty
  std::string unready;  // the server's reason for not being ready; "": ready or unknown
  std::vector<Seen> crds;  // in the order of DoctorOptions::crds
  std::vector<Permission> permissions;
  std::string operator_namespace = "varda-operator";  // of the next two
  Seen lease, operator_deployment, gateway_deployment, gateway_service, gateway_config;
  SeenList nodes, edge_nodes, models, joint_services;
  std::string gateway_url;                     // "": not tried
  std::optional<std::string> gateway_trouble;  // error of that attempt; "": it answers
  WallTime now{};
};

struct DoctorOptions {
  Output output;            // human-readable, or -o json
  std::string version;      // of this program
  std::vector<Json> crds;   // used by this program
  std::string gateway_url;  // "https://host:30443"; "": not tried
  WallTime now{};
  /// Checks that a gateway answers there with a certificate signed by the authority (PEM). Blocks
  /// for a few seconds at most.
  std::function<Status(const Context& ctx, const std::string& url, const std::string& ca_pem)>
      try_gateway;
};

Examined examine(const Context& ctx, Session& session, const DoctorOptions& options);

/// Returns all findings, in this order: server, kinds, permissions, operator, gateway, nodes,
/// models, joint inference services.
std::vector<Finding> diagnose(const Examined& examined, const DoctorOptions& options);

/// Prints the findings. kUnavailable if any is bad: "2 problems found".
Status doctor(const Context& ctx, Session& session, const DoctorOptions& options);

}  // namespace varda::cli
