#include "node/internal/containerd_note.h"

#include "codec/json.h"

namespace varda::node::internal {
namespace {

using codec::Json;

os::Path path_of(const os::Path& root) { return root / "containerd.json"; }

}  // namespace

Status write_containerd_note(const os::Path& root, const ContainerdNote& note) {
  os::FileSystem& fs = os::real_file_system();
  TRY_VOID(fs.make_directories(root));
  return os::write_file_atomically(
      fs, path_of(root), codec::write_json(Json::object({{"socket", note.socket}})) + "\n", 0600);
}

std::optional<ContainerdNote> read_containerd_note(const os::Path& root) {
  const auto text = os::read_file(os::real_file_system(), path_of(root));
  if (!text.ok()) return std::nullopt;
  const auto json = codec::parse_json(*text);
  if (!json.ok() || (*json)["socket"].as_string().empty()) return std::nullopt;
  return ContainerdNote{.socket = (*json)["socket"].as_string()};
}

Status remove_containerd_note(const os::Path& root) {
  return os::real_file_system().remove(path_of(root));
}

}  // namespace varda::node::internal
