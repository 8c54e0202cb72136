#include "artifact/operator_requests.h"

namespace varda::artifact {
namespace {

constexpr const char* kMarks = ".marks";
constexpr const char* kCollect = "collect";
constexpr const char* kKept = ".kept";

std::string suffix(Mark mark) { return mark == Mark::kPinned ? ".pinned" : ".damaged"; }

Status make(os::FileSystem& fs, const os::Path& root, const std::string& name) {
  TRY_VOID(fs.make_directories(root / kMarks, 0700));
  TRY(const auto file, fs.open(root / kMarks / name, os::Open::kCreate, 0600));
  TRY_VOID(file->sync());
  TRY_VOID(fs.sync_directory(root / kMarks));
  return fs.sync_directory(root);
}

Status unmake(os::FileSystem& fs, const os::Path& root, const std::string& name) {
  TRY(const auto there, fs.stat(root / kMarks / name));
  if (!there) return {};
  TRY_VOID(fs.remove(root / kMarks / name));
  return fs.sync_directory(root / kMarks);
}

}  // namespace

Status make_requests_directory(os::FileSystem& fs, const os::Path& root) {
  return fs.make_directories(root / kMarks, 0700);
}

Status set_mark(os::FileSystem& fs, const os::Path& root, const codec::Sha256& digest, Mark mark) {
  return make(fs, root, digest.hex() + suffix(mark));
}

Status clear_mark(os::FileSystem& fs, const os::Path& root, const codec::Sha256& digest,
                  Mark mark) {
  return unmake(fs, root, digest.hex() + suffix(mark));
}

Result<bool> is_marked(os::FileSystem& fs, const os::Path& root, const codec::Sha256& digest,
                       Mark mark) {
  TRY(const auto there, fs.stat(root / kMarks / (digest.hex() + suffix(mark))));
  return there.has_value();
}

Result<std::set<codec::Sha256>> marked(os::FileSystem& fs, const os::Path& root, Mark mark) {
  std::set<codec::Sha256> out;
  TRY(const auto there, fs.stat(root / kMarks));
  if (!there) return out;
  TRY(const auto names, fs.list(root / kMarks));
  const std::string end = suffix(mark);
  for (const std::string& name : names) {
    if (!name.ends_with(end)) continue;
    if (const auto digest =
            codec::Sha256::parse(std::string_view(name).substr(0, name.size() - end.size()));
        digest.ok())
      out.insert(*digest);
  }
  return out;
}

Status ask_to_collect(os::FileSystem& fs, const os::Path& root) { return make(fs, root, kCollect); }

Result<bool> take_request_to_collect(os::FileSystem& fs, const os::Path& root) {
  TRY(const auto there, fs.stat(root / kMarks / kCollect));
  if (!there) return false;
  TRY_VOID(unmake(fs, root, kCollect));
  return true;
}

Status write_kept(os::FileSystem& fs, const os::Path& root, const std::set<codec::Sha256>& kept) {
  std::string text;
  for (const codec::Sha256& digest : kept) text += digest.hex() + "\n";
  return os::write_file_atomically(fs, root / kKept, text, 0600);
}

Result<std::set<codec::Sha256>> read_kept(os::FileSystem& fs, const os::Path& root) {
  std::set<codec::Sha256> out;
  TRY(const auto there, fs.stat(root / kKept));
  if (!there) return out;
  TRY(const std::string text, os::read_file(fs, root / kKept, 1 << 20));
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    if (const auto digest = codec::Sha256::parse(std::string_view(text).substr(at, end - at));
        digest.ok())
      out.insert(*digest);
    at = end + 1;
  }
  return out;
}

}  // namespace varda::artifact
