#include "artifact/operator_requests.h"

namespace varda::artifact {
namespace {

constexpr const char* kMarks = ".marks";
constexpr const char* kCollect = "collect";
constexpr const char* kProtectedFile = ".kept";

std::string suffix(Mark mark) { return mark == Mark::kPinned ? ".pinned" : ".damaged"; }

Status make(os::FileSystem& fs, const os::Path& root, const std::string& name) {
  TRY_VOID(fs.make_directories(root / kMarks, 0700));
  TRY(const auto file, fs.open(root / kMarks / name, os::Open::kCreate, 0600));
  TRY_VOID(file->sync());
  TRY_VOID(fs.sync_directory(root / kMarks));
  return fs.sync_directory(root);
}

Status unmake(os::FileSystem& fs, const os::Path& root, const std::string& name) {
  TRY(const auto existing, fs.stat(root / kMarks / name));
  if (!existing) return {};
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
  TRY(const auto existing, fs.stat(root / kMarks / (digest.hex() + suffix(mark))));
  return existing.has_value();
}

Result<std::set<codec::Sha256>> marked(os::FileSystem& fs, const os::Path& root, Mark mark) {
  std::set<codec::Sha256> out;
  TRY(const auto existing, fs.stat(root / kMarks));
  if (!existing) return out;
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

Status request_collection(os::FileSystem& fs, const os::Path& root) {
  return make(fs, root, kCollect);
}

Result<bool> take_request_to_collect(os::FileSystem& fs, const os::Path& root) {
  TRY(const auto existing, fs.stat(root / kMarks / kCollect));
  if (!existing) return false;
  TRY_VOID(unmake(fs, root, kCollect));
  return true;
}

Status write_protected(os::FileSystem& fs, const os::Path& root,
                       const std::set<codec::Sha256>& digests) {
  std::string text;
  for (const codec::Sha256& digest : digests) text += digest.hex() + "\n";
  return os::write_file_atomically(fs, root / kProtectedFile, text, 0600);
}

Result<std::set<codec::Sha256>> read_protected(os::FileSystem& fs, const os::Path& root) {
  std::set<codec::Sha256> out;
  TRY(const auto existing, fs.stat(root / kProtectedFile));
  if (!existing) return out;
  TRY(const std::string text, os::read_file(fs, root / kProtectedFile, 1 << 20));
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
