#include "node/internal/volumes.h"

#include <algorithm>
#include <unistd.h>

namespace varda::node::internal {
namespace {

using Kind = ConfigSource::Kind;
using os::FileKind;
using os::Path;

constexpr std::uint32_t kDefaultMode = 0644;
// Below the pod's directory.
constexpr const char* kVolumes = "volumes";
constexpr const char* kFresh = "volumes.new";     // never visible to containers
constexpr const char* kReplaced = "volumes.old";  // possibly still mounted in containers

bool stays_inside(const std::string& text) {
  const Path path(text);
  return path.is_relative() && std::find(path.begin(), path.end(), "..") == path.end();
}

bool names_one_directory(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

// Volumes that this runner writes from API objects.
bool is_configuration(const Json& volume) {
  const auto has = [&](const char* kind) { return volume.contains(kind); };
  return has("configMap") || has("secret") || has("downwardAPI") || has("projected");
}

// The object at a path, following links: an administrator may mount a link.
Result<std::optional<FileKind>> kind_at(os::FileSystem& fs, Path path) {
  for (int hops = 0; hops < 40; ++hops) {
    TRY(const std::optional<os::FileInfo> info, fs.stat(path));
    if (!info) return std::optional<FileKind>();
    if (info->kind != FileKind::kSymlink) return std::optional(info->kind);
    TRY(const std::string target, fs.read_link(path));
    path = path.parent_path() / target;
  }
  return Error(Code::kInvalid, path.string() + ": too many links");
}

Status check_host_path(os::FileSystem& fs, const Json& volume) {
  const Path path = volume["path"].as_string();
  const std::string type = volume["type"].as_string();
  if (!path.is_absolute())
    return Error(Code::kInvalid, "hostPath must be absolute: " + path.string());
  if (type == "DirectoryOrCreate") TRY_VOID(fs.make_directories(path));
  TRY(std::optional<FileKind> kind, kind_at(fs, path));
  if (!kind && type == "FileOrCreate") {
    TRY([[maybe_unused]] const auto file, fs.open(path, os::Open::kCreate));
    kind = FileKind::kFile;
  }
  if (!kind) return Error(Code::kNotFound, "hostPath " + path.string() + " does not exist");
  const bool directory = type.starts_with("Directory"), file = type.starts_with("File");
  if (directory && *kind != FileKind::kDirectory)
    return Error(Code::kInvalid, "hostPath " + path.string() + " is not a directory");
  if (file && *kind != FileKind::kFile)
    return Error(Code::kInvalid, "hostPath " + path.string() + " is not a file");
  return {};
}

// The place of a subPath in a volume, created if missing. No component may be a link, because
// containers that write to the volume can plant one.
Result<Path> reach(os::FileSystem& fs, const Path& volume, const std::string& inner) {
  Path path = volume;
  for (const Path& part : Path(inner)) {
    if (part.empty() || part == ".") continue;
    path /= part;
    TRY(const auto info, fs.stat(path));
    if (!info) {
      TRY_VOID(fs.make_directories(path));
    } else if (info->kind == FileKind::kSymlink) {
      return Error(Code::kInvalid,
                   "subPath '" + inner + "' leads through the link '" +
                       path.lexically_relative(volume).string() +
                       "': links are not followed in a volume, they may lead out of it");
    }
  }
  return path;
}

Status write(os::FileSystem& fs, const Path& directory, const std::string& name,
             const std::string& bytes, const Json& mode, const Json& usual) {
  if (!stays_inside(name)) return Error(Code::kInvalid, "path '" + name + "' leaves the volume");
  TRY(const Path parent, reach(fs, directory, Path(name).parent_path().string()));
  const Path path = parent / Path(name).filename();
  if (const auto present = os::read_file(fs, path); present.ok() && *present == bytes) return {};
  return os::write_file_atomically(
      fs, path, bytes, static_cast<std::uint32_t>(mode.as_integer(usual.as_integer(kDefaultMode))));
}

Status write_config(os::FileSystem& fs, const Path& directory, Kind kind, const std::string& name,
                    const Json& volume, const Json& usual, ConfigSource& source) {
  Result<ConfigSource::Data> data = source.get(kind, name);
  const bool optional = volume["optional"].as_bool();
  if (!data.ok())
    return optional && data.error().code() == Code::kNotFound ? Status() : Status(data.error());
  if (!volume.contains("items")) {
    for (const auto& [key, value] : *data)
      TRY_VOID(write(fs, directory, key, value, Json(), usual));
    return {};
  }
  for (const Json& item : volume["items"].as_array()) {
    const auto found = data->find(item["key"].as_string());
    if (found == data->end()) {
      if (optional) continue;
      return Error(Code::kNotFound,
                   "references non-existent config key: " + item["key"].as_string());
    }
    TRY_VOID(write(fs, directory, item["path"].as_string(), found->second, item["mode"], usual));
  }
  return {};
}

Status write_fields(os::FileSystem& fs, const Path& directory, const PodRecord& record,
                    const std::string& host_ip, const Json& volume, const Json& usual) {
  for (const Json& item : volume["items"].as_array()) {
    TRY(const std::string value,
        field_text(record, host_ip, item.at("fieldRef/fieldPath").as_string()));
    TRY_VOID(write(fs, directory, item["path"].as_string(), value, item["mode"], usual));
  }
  return {};
}

Status write_configuration(os::FileSystem& fs, const Path& directory, const PodRecord& record,
                           const std::string& host_ip, const Json& volume, ConfigSource& source) {
  if (const Json* map = volume.find("configMap")) {
    return write_config(fs, directory, Kind::kConfigMap, (*map)["name"].as_string(), *map,
                        (*map)["defaultMode"], source);
  }
  if (const Json* secret = volume.find("secret")) {
    return write_config(fs, directory, Kind::kSecret, (*secret)["secretName"].as_string(), *secret,
                        (*secret)["defaultMode"], source);
  }
  if (const Json* api = volume.find("downwardAPI"))
    return write_fields(fs, directory, record, host_ip, *api, (*api)["defaultMode"]);
  const Json& projected = volume["projected"];
  const Json& usual = projected["defaultMode"];
  for (const Json& part : projected["sources"].as_array()) {
    if (const Json* map = part.find("configMap")) {
      TRY_VOID(write_config(fs, directory, Kind::kConfigMap, (*map)["name"].as_string(), *map,
                            usual, source));
    } else if (const Json* secret = part.find("secret")) {
      TRY_VOID(write_config(fs, directory, Kind::kSecret, (*secret)["name"].as_string(), *secret,
                            usual, source));
    } else if (const Json* api = part.find("downwardAPI")) {
      TRY_VOID(write_fields(fs, directory, record, host_ip, *api, usual));
    } else {
      return Error(Code::kUnsupported,
                   "projected volumes take configMap, secret and downwardAPI here");
    }
  }
  return {};
}

// fsGroup reads configuration and writes emptyDirs. Without root, all files belong to the one user
// of all containers.
std::optional<std::uint32_t> volume_group(const PodRecord& record) {
  const Json& group = record.pod.at("spec/securityContext/fsGroup");
  if (::geteuid() != 0 || !group.is_integer() || group.as_integer() < 0) return std::nullopt;
  return static_cast<std::uint32_t>(group.as_integer());
}

Status give_to_group(os::FileSystem& fs, const Path& path, std::uint32_t group) {
  TRY(const auto info, fs.stat(path));
  if (!info) return {};
  const bool directory = info->kind == FileKind::kDirectory;
  TRY_VOID(fs.set_group(path, group));
  TRY_VOID(fs.set_mode(path, info->mode | (directory ? 0550 : 0440)));
  if (!directory) return {};
  TRY(const std::vector<std::string> names, fs.list(path));
  for (const std::string& name : names) TRY_VOID(give_to_group(fs, path / name, group));
  return {};
}

// Moves the old `directory` away. A container may have it mounted and keep reading, so it is kept
// while containers run.
Status move_away(os::FileSystem& fs, const Path& pod_directory, const std::string& name) {
  const Path directory = pod_directory / kVolumes / name, aside = pod_directory / kReplaced;
  TRY(const auto existing, fs.stat(directory));
  if (!existing) return {};
  TRY_VOID(fs.make_directories(aside, 0700));
  for (int number = 0;; ++number) {
    const Path to = aside / (name + "." + std::to_string(number));
    TRY(const auto taken, fs.stat(to));
    if (!taken) return fs.rename(directory, to);
  }
}

Status make_volume(os::FileSystem& fs, const Path& pod_directory, const PodRecord& record,
                   const std::string& host_ip, const Json& volume, ConfigSource& source) {
  const std::string& name = volume["name"].as_string();
  if (!names_one_directory(name)) return Error(Code::kInvalid, "its name is not one");
  const Path directory = pod_directory / kVolumes / name;
  if (const Json* host_path = volume.find("hostPath")) return check_host_path(fs, *host_path);
  if (volume.contains("emptyDir")) {
    TRY_VOID(fs.make_directories(directory));
    const auto group = volume_group(record);
    if (group) TRY_VOID(fs.set_group(directory, *group));
    return fs.set_mode(directory, group ? 02777 : 0777);
  }
  if (!is_configuration(volume)) {
    return Error(Code::kUnsupported,
                 "only emptyDir, hostPath, configMap, secret, downwardAPI and projected volumes "
                 "are known here");
  }
  // Written where no container has access. In a mounted directory, a planted link would lead
  // outside.
  const Path fresh = pod_directory / kFresh / name;
  TRY_VOID(fs.remove_all(fresh));
  TRY_VOID(fs.make_directories(pod_directory / kFresh, 0700));
  TRY_VOID(fs.make_directories(fresh));
  TRY_VOID(write_configuration(fs, fresh, record, host_ip, volume, source));
  if (const auto group = volume_group(record)) TRY_VOID(give_to_group(fs, fresh, *group));
  TRY_VOID(move_away(fs, pod_directory, name));
  TRY_VOID(fs.make_directories(pod_directory / kVolumes));
  return fs.rename(fresh, directory);
}

}  // namespace

Status make_volumes(os::FileSystem& fs, const Path& pod_directory, const PodRecord& record,
                    const std::string& host_ip, ConfigSource& source) {
  const auto runs = [](const ContainerRecord& c) {
    return c.state == ContainerRecord::State::kRunning ||
           c.state == ContainerRecord::State::kStarting;
  };
  const bool mounted = std::any_of(record.init.begin(), record.init.end(), runs) ||
                       std::any_of(record.main.begin(), record.main.end(), runs);
  if (!mounted) TRY_VOID(fs.remove_all(pod_directory / kReplaced));
  for (const Json& volume : record.pod.at("spec/volumes").as_array()) {
    const std::string& name = volume["name"].as_string();
    TRY_VOID(make_volume(fs, pod_directory, record, host_ip, volume, source)
                 .context("volume '" + name + "'"));
  }
  return {};
}

bool has_configuration(const PodRecord& record) {
  const auto& volumes = record.pod.at("spec/volumes").as_array();
  return std::any_of(volumes.begin(), volumes.end(), is_configuration);
}

Status refresh_volumes(os::FileSystem& fs, const Path& pod_directory, const PodRecord& record,
                       const std::string& host_ip, ConfigSource& source) {
  for (const Json& volume : record.pod.at("spec/volumes").as_array()) {
    const std::string& name = volume["name"].as_string();
    const Path directory = pod_directory / kVolumes / name;
    if (!is_configuration(volume) || !names_one_directory(name)) continue;
    TRY(const auto existing, fs.stat(directory));
    if (!existing || existing->kind != FileKind::kDirectory) continue;
    TRY_VOID(write_configuration(fs, directory, record, host_ip, volume, source)
                 .context("volume '" + name + "'"));
    if (const auto group = volume_group(record)) TRY_VOID(give_to_group(fs, directory, *group));
  }
  return {};
}

Result<std::vector<os::Mount>> make_mounts(os::FileSystem& fs, const Path& pod_directory,
                                           const PodRecord& record, const Json& container,
                                           const std::map<std::string, std::string>& environment) {
  std::vector<os::Mount> mounts;
  for (const Json& wanted : container["volumeMounts"].as_array()) {
    const std::string& name = wanted["name"].as_string();
    const auto& volumes = record.pod.at("spec/volumes").as_array();
    const auto volume = std::find_if(volumes.begin(), volumes.end(),
                                     [&](const Json& v) { return v["name"].as_string() == name; });
    if (volume == volumes.end())
      return Error(Code::kInvalid, "volumeMount " + name + ": there is no such volume");
    Path source = volume->contains("hostPath") ? Path(volume->at("hostPath/path").as_string())
                                               : pod_directory / kVolumes / name;
    std::string inner = wanted["subPath"].as_string();
    if (const Json* expression = wanted.find("subPathExpr"))
      inner = expand(expression->as_string(), environment);
    if (!inner.empty()) {
      if (!stays_inside(inner))
        return Error(Code::kInvalid,
                     "volumeMount " + name + ": subPath '" + inner + "' leaves the volume");
      TRY(source, reach(fs, source, inner).context("volumeMount " + name));
    }
    mounts.push_back({.source = std::move(source),
                      .target = wanted["mountPath"].as_string(),
                      .read_only = wanted["readOnly"].as_bool() || is_configuration(*volume)});
  }
  return mounts;
}

}  // namespace varda::node::internal
