// What a tree held when it was unpacked, so that it can be looked over later: the archive itself is not kept.
//
// One line an entry, in the order of the archive, paths percent-encoded (RFC 3986):
//   file SHA256 SIZE PATH
//   link TARGET PATH
//   directory PATH
//   end TOP          the last line; TOP is the single top-level directory that was stripped, or "-"; "%2D" if that is its name
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/context.h"
#include "codec/digest.h"
#include "os/file_system.h"

namespace varda::artifact {

/// Written as the entries come: an archive may have a hundred thousand of them. One thread.
class TreeRecordWriter {
 public:
  static Result<std::unique_ptr<TreeRecordWriter>> create(os::FileSystem& fs, const os::Path& file);
  Status file(const std::string& path, const codec::Sha256& digest, std::uint64_t bytes);
  Status link(const std::string& path, const std::string& target);
  Status directory(const std::string& path);
  /// Durable on return, as far as the file itself.
  Status end(const std::string& top);

 private:
  explicit TreeRecordWriter(std::unique_ptr<os::File> file) : out_(std::move(file)) {}
  Status line(std::string text);

  std::unique_ptr<os::File> out_;
  std::string buffer_;
};

/// How a tree differs from its record; empty: not at all. Reads every byte. At most 20 differences are told. kNotFound: there is no
/// record, as of trees of earlier versions; kCorrupt: it cannot be read.
Result<std::vector<std::string>> compare_with_record(const Context& ctx, os::FileSystem& fs, const os::Path& tree,
                                                     const os::Path& record);

}  // namespace varda::artifact
