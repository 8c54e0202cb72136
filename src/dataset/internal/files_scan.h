// A folder of files, each with samples of one format: the sum of the counts of the files.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dataset/internal/fingerprint.h"
#include "dataset/internal/folder.h"
#include "dataset/internal/scanner.h"
#include "dataset/internal/state.h"

namespace varda::dataset::internal {

class FileCount;

/// Counts every file with the format's extension, at any depth. With the state of an earlier count
/// an unchanged file is not opened, and a file that grew is read from its old end.
class FilesScan final : public TreeScan {
 public:
  /// A longer state is not kept: every change of the folder would write it to disk again.
  static constexpr std::size_t kStateBytesMax = std::size_t{1} << 20;

  /// `format` has a stream and an extension, and outlives the scan. `state` is untrusted.
  FilesScan(const Format& format, const FormatOptions& options, std::string_view state);
  ~FilesScan() override;

  Status begin(const Surroundings& around) override;
  Result<bool> resume(const Context& ctx, std::uint64_t steps) override;
  const Found& found() const override { return found_; }

 private:
  struct OpenFile {
    explicit OpenFile(std::string path_of_file) : path(std::move(path_of_file)) {}
    std::string path;
    std::unique_ptr<FileCount> count;
    std::optional<State> state;  // of an earlier count, if the file grew
    bool begun = false;
  };
  void visit(const FolderEntry& entry);
  bool reuse(const FolderEntry& entry, const FolderState::File& known);
  Status open(const FolderEntry& entry);
  Result<std::uint64_t> read(const Context& ctx, std::uint64_t bytes_max);
  Result<bool> read_part(const Context& ctx, std::uint64_t bytes_max);
  void remember(const std::string& path, FolderState::File file);
  void complete();

  const Format& format_;
  const FormatOptions options_;
  const Surroundings* around_ = nullptr;
  FolderState before_, after_;
  std::size_t state_bytes_ = 0;   // estimated length of the text of after_
  std::optional<OpenFile> file_;  // the file that is being read
  Found found_;
  FolderTally folder_{found_.tally};
  SetHash files_;
  std::optional<Walk> walk_;
};

}  // namespace varda::dataset::internal
