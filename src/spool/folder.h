// The folder of a spool, as other processes than the server see it.
//
//   ROOT/pending/ID.EXT    a sample: png, jpg or npy
//   ROOT/pending/ID.json   its facts, written after the sample. A sample without facts, or facts
//                          without a sample, is the rest of an interrupted change
//   ROOT/label/CLASS/FILE  a labelled sample, put there by label(), or dropped by a person
//   ROOT/state.json        how often each group was offered (selection.h)
//
// Every change is one rename, so a process may be killed at any time. Several processes may change
// one folder: the server adds and removes pending samples, others label them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "os/file_system.h"
#include "spool/facts.h"

namespace varda::spool {

inline constexpr std::string_view kPending = "pending", kLabel = "label";
inline constexpr std::uint64_t kSampleBytesMax = std::uint64_t{64} << 20;

/// Creates the directories with this mode for new ones.
Status make_folder(os::FileSystem& fs, const os::Path& root, std::uint32_t mode = 0755);

/// The pending samples, sorted by id, so by time. Broken facts and interrupted changes are left
/// out. A missing folder has none.
Result<std::vector<Facts>> list(os::FileSystem& fs, const os::Path& root);
/// The names of pending samples, without reading facts: cheap.
struct PendingFiles {
  std::vector<std::string> ids;      // with facts and sample
  std::vector<std::string> orphans;  // facts alone: a person moved or removed the sample
};
Result<PendingFiles> pending_files(os::FileSystem& fs, const os::Path& root);
Result<std::vector<std::string>> pending_ids(os::FileSystem& fs, const os::Path& root);
/// Removes the facts of orphans. The sample is written before its facts, so facts alone are never a
/// sample on its way.
Status remove_orphans(os::FileSystem& fs, const os::Path& root, const PendingFiles& files);
/// kNotFound: no such sample.
Result<Facts> read_facts(os::FileSystem& fs, const os::Path& root, const std::string& id);
Result<std::string> read_sample(os::FileSystem& fs, const os::Path& root, const Facts& facts);

/// Moves a pending sample to label/CLASS. Idempotent. kNotFound: no such sample. kInvalid: no class
/// name, or the sample is a link.
Status label(os::FileSystem& fs, const os::Path& root, const std::string& id,
             std::string_view class_name);
/// Removes a pending sample. Success if missing.
Status discard(os::FileSystem& fs, const os::Path& root, const std::string& id,
               std::string_view format);

/// A file below label/.
struct Labelled {
  std::string class_name;
  std::string file;  // name in the folder of the class
  std::uint64_t bytes = 0;
  std::chrono::system_clock::time_point modified;
};
/// Files with the suffix of a sample (also jpeg, any case), sorted. Names that begin with '.' are
/// ignored.
struct Labels {
  std::vector<Labelled> files;
  // Paths of links, which could lead to files of other owners. Nothing reads or moves them.
  std::vector<std::string> links;
};
Result<Labels> labels(os::FileSystem& fs, const os::Path& root);
Result<std::vector<Labelled>> labelled(os::FileSystem& fs, const os::Path& root);

/// The suffix of a file as the name of a format: "JPEG" is jpg. "": no sample.
std::string_view format_of(std::string_view file);

}  // namespace varda::spool
