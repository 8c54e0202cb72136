// The agent's record of a dataset on disk: the resume state of its count, and the last report.
//
// One small file per dataset in DATA/datasets, outside the database. A state may have megabytes
// (coco), and a growing dataset would write it to the database's log every few seconds. Files are
// replaced as a whole, so that a reader sees the old one or the new one.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>

#include "api/edgeai/edge_node.h"
#include "os/file_system.h"
#include "os/readable_tree.h"

namespace varda::agent::datasets {

struct Record {
  api::EdgeDataset spec;                    // the counted dataset
  api::EdgeDatasetReport report;            // the last one
  std::string state;                        // of dataset::count()
  std::optional<os::FileFacts> facts;       // of the file at that count
  std::optional<std::chrono::seconds> age;  // since every byte was read, while the agent ran
};

/// Whether both are counted the same way, so that one's record is valid for the other.
bool same_dataset(const api::EdgeDataset& a, const api::EdgeDataset& b);

/// Not thread-safe, except for different keys.
class Records {
 public:
  Records(os::FileSystem& fs, os::Path directory) : fs_(fs), directory_(std::move(directory)) {}

  /// Nothing if the record is missing, belongs to another dataset, or is damaged (logged; the
  /// dataset is counted again). Error: the disk fails, and a later read may succeed.
  Result<std::optional<Record>> read(const api::EdgeDataset& spec);
  Status write(const Record& record);
  /// Removes records of other datasets, and leftovers of a killed process.
  Status keep_only(const std::set<std::string>& keys);

 private:
  std::string name_of(std::string_view key) const;
  os::FileSystem& fs_;
  const os::Path directory_;
};

}  // namespace varda::agent::datasets
