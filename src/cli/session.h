// What every verb of the CLI works with: a server, a namespace, and where to write.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/context.h"
#include "kube/client.h"
#include "kube/discovery.h"
#include "os/file_system.h"

namespace varda::cli {

using codec::Json;

/// One command's surroundings. Not thread-safe.
struct Session {
  const kube::Client& client;
  std::string ns = "default";
  bool all_namespaces = false;
  bool terminal = false;  // remarks go to one: what goes on may be told as it does
  os::FileSystem& fs;
  std::function<void(std::string_view)> out;        // standard output, as it comes
  std::function<void(std::string_view)> error;      // remarks for people
  std::function<Result<std::string>()> read_input;  // all of standard input, for "-f -"

  /// Asked of the server once.
  Result<const kube::Discovery*> discovery(const Context& ctx);
  /// "" for cluster-scoped kinds and for all namespaces.
  std::string namespace_of(const meta::Resource& resource) const;

 private:
  std::optional<kube::Discovery> discovery_;

 public:
  Session(const kube::Client& c, os::FileSystem& files, std::function<void(std::string_view)> o,
          std::function<void(std::string_view)> e, std::function<Result<std::string>()> i)
      : client(c), fs(files), out(std::move(o)), error(std::move(e)), read_input(std::move(i)) {}
};

/// What the words behind a verb name.
struct Target {
  kube::ApiResource resource;
  std::vector<std::string> names;  // empty: all of them
};
/// "pods", "pods a b", "pod/a node/b", "pods,services", "edgeai" (a category). kInvalid, kNotFound.
Result<std::vector<Target>> parse_targets(const Context& ctx, Session& session, const std::vector<std::string>& words);
/// The same where names must be given, each for one object.
struct Named {
  kube::ApiResource resource;
  meta::ObjectKey key;
};
Result<std::vector<Named>> parse_names(const Context& ctx, Session& session, const std::vector<std::string>& words);

/// Every object of the files, folders (*.yaml, *.yml, *.json) and "-" (standard input); Lists are taken apart.
/// Errors name the file, and the line where it can.
Result<std::vector<Json>> read_manifests(Session& session, const std::vector<std::string>& paths);
/// Where an object of a manifest lives: its own namespace, else the session's. kInvalid: no kind, apiVersion or name.
Result<Named> locate(const Context& ctx, Session& session, const Json& object);

/// "pod/name", "inferencemodel.ai.kubeedge.io/name".
std::string spelled(const kube::ApiResource& resource, std::string_view name);

}  // namespace varda::cli
