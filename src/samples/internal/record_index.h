// Where the samples of csv, tsv and txt files begin: 12 bytes each.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/context.h"
#include "os/readable_tree.h"
#include "samples/internal/files.h"
#include "samples/internal/records.h"

namespace varda::samples::internal {

/// Immutable after the last add().
class RecordIndex {
 public:
  RecordIndex(os::ReadableTree& tree, const TableDialect& dialect)
      : tree_(tree), dialect_(dialect) {}

  /// Returns true if the record is a sample. An error lacks the place. `first`: of the file.
  using Visit = std::function<Result<bool>(const Record& record, std::size_t bytes, bool first)>;
  /// Reads one file, or all files of a folder with the extension. Adds every byte to `hash`.
  Status add(const Context& ctx, const os::Path& path, bool is_folder, std::string_view extension,
             Fingerprint& hash, const Visit& visit);

  std::size_t size() const { return offsets_.size(); }
  /// The name below the dataset's path.
  const std::string& file_of(std::size_t index) const { return file(index).name; }
  std::string place(std::size_t index) const {
    return file(index).name + ", line " + std::to_string(lines_[index]);
  }

  /// Reads records again. Not thread-safe.
  class Reader {
   public:
    explicit Reader(const RecordIndex& index) : index_(index), record_(index.dialect_) {}
    /// Valid until the next call. kConflict: the file changed.
    Result<const Record*> read(std::size_t index);
    /// The bytes of the record without the line end. Valid as read() is.
    Result<std::string_view> text(std::size_t index);

   private:
    const RecordIndex& index_;
    Record record_;
    const void* open_ = nullptr;  // the entry of `file_`
    std::unique_ptr<os::ReadableFile> file_;
    std::string text_;
    std::size_t length_ = 0;  // of the record in `text_`, with the line end
  };

 private:
  struct File {
    os::Path path;
    std::string name;
    os::FileFacts facts;
    std::size_t first = 0;  // number of the first sample
  };
  Status add_file(const Context& ctx, const os::Path& path, const std::string& name,
                  Fingerprint& hash, const Visit& visit);
  const File& file(std::size_t index) const;

  os::ReadableTree& tree_;
  const TableDialect dialect_;
  std::vector<File> files_;  // with samples
  std::vector<std::uint64_t> offsets_;
  std::vector<std::uint32_t> lines_;
};

}  // namespace varda::samples::internal
