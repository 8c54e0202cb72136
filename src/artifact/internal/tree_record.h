// Records the content of an unpacked tree, so that it can be verified later. The archive itself is
// not kept.
//
// One line an entry, in the order of the archive, paths percent-encoded (RFC 3986):
//   file SHA256 SIZE PATH
//   link TARGET PATH
//   directory PATH
//   end TOP          the last line; TOP is the single top-level directory that was stripped, or
//                    "-"; "%2D" if that is its name
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/context.h"
#include "codec/digest.h"
#include "os/file_system.h"

namespace varda::artifact {

/// Written entry by entry, because an archive may have 100,000 entries. One thread.
class TreeRecordWriter {
 public:
  static Result<std::unique_ptr<TreeRecordWriter>> create(os::FileSystem& fs, const os::Path& file);
  Status file(const std::string& path, const codec::Sha256& digest, std::uint64_t bytes);
  Status link(const std::string& path, const std::string& target);
  Status directory(const std::string& path);
  /// The file is durable on return; its directory entry is not.
  Status end(const std::string& top);

 private:
  explicit TreeRecordWriter(std::unique_ptr<os::File> file) : out_(std::move(file)) {}
  Status line(std::string text);

  std::unique_ptr<os::File> out_;
  std::string buffer_;
};

/// Lists the differences between a tree and its record; empty: equal. Reads every byte. Returns at
/// most 20 differences. kNotFound: no record, as for trees of earlier versions. kCorrupt: the
/// record is unreadable.
Result<std::vector<std::string>> compare_with_record(const Context& ctx, os::FileSystem& fs,
                                                     const os::Path& tree, const os::Path& record);

}  // namespace varda::artifact
