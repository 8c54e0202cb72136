#include "datadir/up_state.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/json.h"
#include "meta/object.h"

namespace varda::datadir {

using codec::Json;

namespace {

Json list_of(const std::vector<std::string>& texts) {
  Json list = Json::array();
  for (const std::string& text : texts) list.push_back(text);
  return list;
}

/// The error for a file that this user may not read. It names the owner of the file, or of the
/// nearest visible directory above.
Error denied(const std::filesystem::path& data_dir, const std::filesystem::path& file) {
  struct stat info {};
  std::filesystem::path seen = file;
  while (::lstat(seen.c_str(), &info) != 0 && seen.has_relative_path()) seen = seen.parent_path();
  const uid_t owner = info.st_uid;
  const std::string us = user_name(::geteuid()), directory = data_dir.string();
  const bool is_own =
      ::lstat(data_dir.c_str(), &info) == 0 && info.st_uid == ::geteuid() && owner != info.st_uid;
  return Error(Code::kForbidden,
               "cannot read " + file.string() + ": Permission denied, " +
                   (seen == file ? "it" : seen.string()) + " belongs to " + user_name(owner) +
                   "; " +
                   (is_own ? "give it back with `sudo chown -R " + us + " " + directory + "`"
                           : "run this command as " + user_name(owner) +
                                 ", or name a directory of " + us + " with --data-dir"));
}

}  // namespace

std::string user_name(uid_t id) {
  const passwd* const entry = ::getpwuid(id);
  return entry != nullptr ? entry->pw_name : "user " + std::to_string(id);
}

Result<NodeSpec> parse_node(const std::string& text) {
  NodeSpec node;
  const auto equals = text.find('=');
  node.name = text.substr(0, equals);
  node.layer = equals != std::string::npos        ? text.substr(equals + 1)
               : node.name.rfind("cloud", 0) == 0 ? "cloud"
                                                  : "edge";
  if (const std::string why = meta::check_dns_label(node.name); !why.empty())
    return Error(Code::kInvalid, "--node \"" + text + "\": " + why);
  if (node.layer != "cloud" && node.layer != "edge" && node.layer != "device") {
    return Error(Code::kInvalid, "--node \"" + text +
                                     "\": the layer must be cloud, edge or device, not \"" +
                                     node.layer + "\"");
  }
  return node;
}

Result<std::optional<UpState>> read_state(const std::filesystem::path& data_dir) {
  const std::filesystem::path file = data_dir / "up.json";
  auto& files = os::real_file_system();
  const auto existing = files.stat(file);
  if (existing.ok() && !*existing) return std::optional<UpState>();
  const auto text = os::read_file(files, file);
  if (!text.ok())
    return text.error().code() == Code::kForbidden ? denied(data_dir, file) : text.error();
  const auto json = codec::parse_json(*text);
  if (!json.ok() || !json->is_object()) {
    return Error(Code::kCorrupt, file.string() + " is damaged" +
                                     (json.ok() ? "" : " (" + json.error().message() + ")") +
                                     ", which lists the nodes of this directory; to start without "
                                     "the file, remove it and set --node for each node");
  }
  UpState state;
  state.process = {static_cast<pid_t>((*json)["pid"].as_integer()),
                   static_cast<std::uint64_t>((*json)["startTicks"].as_integer())};
  state.address = (*json)["address"].as_string();
  state.gateway = (*json)["gateway"].as_string();
  state.registry = (*json)["registry"].as_string();
  for (const Json& node : (*json)["nodes"].as_array())
    state.nodes.push_back({node["name"].as_string(), node["layer"].as_string()});
  for (const Json::Member& image : (*json)["images"].as_object())
    state.images[image.first] = image.second.as_string();
  state.driver = (*json)["driver"].as_string();
  state.containerd_socket = (*json)["containerdSocket"].as_string();
  state.pod_network = (*json)["podNetwork"].as_string();
  for (const Json& root : (*json)["datasetRoots"].as_array())
    state.dataset_roots.push_back(root.as_string());
  for (const Json& address : (*json)["addresses"].as_array())
    state.addresses.push_back(address.as_string());
  return std::optional(std::move(state));
}

Status write_state(const std::filesystem::path& data_dir, const UpState& state) {
  Json nodes = Json::array();
  for (const NodeSpec& node : state.nodes)
    nodes.push_back(Json::object({{"name", node.name}, {"layer", node.layer}}));
  Json images = Json::object();
  for (const auto& [name, command] : state.images) images.set(name, command);
  const Json json = Json::object({{"pid", static_cast<std::int64_t>(state.process.pid)},
                                  {"startTicks", state.process.start_ticks},
                                  {"address", state.address},
                                  {"gateway", state.gateway},
                                  {"registry", state.registry},
                                  {"nodes", nodes},
                                  {"images", images},
                                  {"driver", state.driver},
                                  {"containerdSocket", state.containerd_socket},
                                  {"podNetwork", state.pod_network},
                                  {"datasetRoots", list_of(state.dataset_roots)},
                                  {"addresses", list_of(state.addresses)},
                                  {"version", VARDA_VERSION}});
  return os::write_file_atomically(os::real_file_system(), data_dir / "up.json",
                                   codec::write_json_pretty(json) + "\n", 0600);
}

std::filesystem::path node_directory(const std::filesystem::path& data_dir,
                                     const std::string& name) {
  return data_dir / "nodes" / name;
}

}  // namespace varda::datadir
