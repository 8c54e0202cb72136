#include "serving/layout.h"

#include <algorithm>

#include "base/text.h"
#include "codec/digest.h"

namespace varda::serving {
namespace {

constexpr std::size_t kVersionBytesMax = 63;
constexpr std::string_view kLastGood = ".last-good";
constexpr std::string_view kJointFile = "joint.json";
constexpr std::uint64_t kJointFileBytesMax = 1 << 20;
constexpr std::string_view kTrialFile = "trial.json";
constexpr std::uint64_t kTrialFileBytesMax = 64 << 10;

bool digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_version(std::string_view name) {
  if (name.empty() || name.size() > kVersionBytesMax || name.front() == '.') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

// A directory, or a link to one: volumes of config maps and images contain many links.
bool is_directory(os::FileSystem& fs, const std::filesystem::path& path) {
  const auto info = fs.stat(path);
  if (!info.ok() || !info->has_value()) return false;
  if ((*info)->kind == os::FileKind::kDirectory) return true;
  if ((*info)->kind != os::FileKind::kSymlink) return false;
  const auto behind = fs.stat(path / ".");
  return behind.ok() && behind->has_value() && (*behind)->kind == os::FileKind::kDirectory;
}

std::string fingerprint(os::FileSystem& fs, const std::filesystem::path& directory) {
  const auto names = fs.list(directory / ".");
  if (!names.ok()) return "unreadable";
  std::string out;
  for (const std::string& name : *names) {
    const auto info = fs.stat(directory / name);
    if (!info.ok() || !info->has_value()) continue;
    out += name + ":" + std::to_string((*info)->size_bytes) + ":" + std::to_string((*info)->inode) +
           ":" + std::to_string((*info)->modified.time_since_epoch().count()) + ";";
  }
  return out;
}

// Ignores a file that is unreadable or wrong: it only saves a probe and names a fallback.
void read_last_good(os::FileSystem& fs, const std::filesystem::path& model, Wanted& out) {
  const auto text = read_text(fs, model / kLastGood, 4096);
  if (!text.ok()) return;
  const std::string_view line = trim(*text);
  const std::string_view version = line.substr(0, line.find(' '));
  if (!is_version(version) || !is_directory(fs, model / version)) return;
  out.last_good = version;
  out.last_good_fingerprint = fingerprint(fs, model / version);
  out.last_good_unchanged = line == out.last_good + " " + files_name(out.last_good_fingerprint);
}

std::optional<std::string> read_joint_file(os::FileSystem& fs, const std::filesystem::path& model) {
  auto text = read_text(fs, model / kJointFile, kJointFileBytesMax);
  if (text.ok()) return std::move(text).value();
  return text.error().code() == Code::kNotFound ? std::nullopt : std::optional<std::string>("");
}

std::optional<WantedTrial> read_trial(os::FileSystem& fs, const std::filesystem::path& model) {
  const auto text = read_text(fs, model / kTrialFile, kTrialFileBytesMax);
  if (!text.ok() && text.error().code() == Code::kNotFound) return std::nullopt;
  WantedTrial out;
  auto file = text.ok() ? trial::parse_file(*text) : Result<trial::File>(text.error());
  if (file.ok()) out.file = std::move(file).value();
  if (!file.ok() || !is_version(out.file.version)) {
    out.reason = "Invalid";
    out.problem = file.ok() ? "trial.json: version must be up to 63 of A-Z a-z 0-9 . _ -"
                            : file.error().message();
  } else if (!is_directory(fs, model / out.file.version)) {
    out.reason = "VersionMissing";
    out.problem = "trial.json names version " + out.file.version + ", which does not exist";
  } else {
    out.fingerprint = fingerprint(fs, model / out.file.version);
  }
  return out;
}

Result<Wanted> look(os::FileSystem& fs, const std::filesystem::path& model) {
  TRY(const std::vector<std::string> names, fs.list(model / "."));
  Wanted out;
  if (std::find(names.begin(), names.end(), kLastGood) != names.end())
    read_last_good(fs, model, out);
  if (std::find(names.begin(), names.end(), "target") != names.end()) {
    TRY(const std::string text, read_text(fs, model / "target", 4096));
    const std::string_view version = trim(text);
    if (!is_version(version))
      return Error(Code::kInvalid,
                   "target contains no version: must be up to 63 of A-Z a-z 0-9 . _ -");
    out.version = version;
    if (!is_directory(fs, model / out.version)) {
      out.problem = "target names version " + out.version + ", which does not exist";
      return out;
    }
  } else {
    for (const std::string& name : names) {
      if (is_version(name) && (out.version.empty() || older(out.version, name)) &&
          is_directory(fs, model / name))
        out.version = name;
    }
    if (out.version.empty()) return Error(Code::kNotFound, "there is no version");
  }
  out.fingerprint = fingerprint(fs, model / out.version);
  return out;
}

}  // namespace

Result<std::string> read_text(os::FileSystem& fs, const std::filesystem::path& path,
                              std::uint64_t max_bytes) {
  TRY(const std::optional<os::FileInfo> info, fs.stat(path));
  if (info && info->kind != os::FileKind::kFile)
    return Error(Code::kInvalid, path.filename().string() + " is not a file");
  return os::read_file(fs, path, max_bytes);
}

std::string files_name(std::string_view fingerprint) {
  codec::Sha256Stream stream;
  stream.update(fingerprint);
  return stream.finish().hex().substr(0, 16);
}

bool older(std::string_view a, std::string_view b) {
  if (digits(a) != digits(b)) return digits(b);
  if (!digits(a)) return a < b;
  // Compares digits as text: versions may be dates, or too long for an integer.
  const auto significant = [](std::string_view text) {
    return text.substr(std::min(text.find_first_not_of('0'), text.size()));
  };
  const std::string_view left = significant(a), right = significant(b);
  if (left.size() != right.size()) return left.size() < right.size();
  return left != right ? left < right : a < b;
}

Result<std::map<std::string, Wanted>> scan(os::FileSystem& fs,
                                           const std::filesystem::path& repository) {
  TRY(const std::vector<std::string> names, fs.list(repository / "."));
  std::map<std::string, Wanted> out;
  for (const std::string& name : names) {
    if (name.front() == '.' || name == "lost+found" || !is_directory(fs, repository / name))
      continue;
    auto wanted = look(fs, repository / name);
    out[name] =
        wanted.ok() ? std::move(wanted).value() : Wanted{.problem = wanted.error().message()};
    out[name].joint = read_joint_file(fs, repository / name);
    out[name].trial = read_trial(fs, repository / name);
  }
  return out;
}

}  // namespace varda::serving
