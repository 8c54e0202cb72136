// Shared environment of all CLI verbs: server, namespace and output.
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

/// The environment of one command. Not thread-safe.
struct Session {
  const kube::Client& client;
  std::string ns = "default";
  bool all_namespaces = false;
  bool terminal = false;  // `error` is a terminal, so progress may be shown
  os::FileSystem& fs;
  std::function<void(std::string_view)> out;        // standard output
  std::function<void(std::string_view)> error;      // messages for people
  std::function<Result<std::string>()> read_input;  // reads all of standard input, for "-f -"

  /// Queries the server once and caches the result.
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

/// A resource and names from the command line.
struct Target {
  kube::ApiResource resource;
  std::vector<std::string> names;  // empty: all objects
};
/// "pods", "pods a b", "pod/a node/b", "pods,services", "edgeai" (a category). kInvalid, kNotFound.
Result<std::vector<Target>> parse_targets(const Context& ctx, Session& session,
                                          const std::vector<std::string>& arguments);
/// The same for commands that require names, one per object.
struct Named {
  kube::ApiResource resource;
  meta::ObjectKey key;
};
Result<std::vector<Named>> parse_names(const Context& ctx, Session& session,
                                       const std::vector<std::string>& arguments);

/// All objects of the files, folders (*.yaml, *.yml, *.json) and "-" (standard input); Lists are
/// split. Errors name the file, and the line if known.
Result<std::vector<Json>> read_manifests(Session& session, const std::vector<std::string>& paths);
/// Resource and key of a manifest's object; the namespace defaults to the session's. kInvalid: no
/// kind, apiVersion or name.
Result<Named> locate(const Context& ctx, Session& session, const Json& object);

/// "pod/name", "inferencemodel.ai.kubeedge.io/name".
std::string spelled(const kube::ApiResource& resource, std::string_view name);

}  // namespace varda::cli
