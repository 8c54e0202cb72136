// What the agent keeps of a dataset on its disk: where counting stopped, and what was said of it last.
//
// One small file a dataset in DATA/datasets, beside the database: a state may be megabytes (coco), and a dataset that grows would
// write it into the database's log every few seconds. Replaced as a whole, so that a reader sees the old one or the new.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>

#include "api/edgeai/edge_node.h"
#include "os/file_system.h"
#include "os/readable_tree.h"

namespace varda::agent {

struct DatasetRecord {
  api::EdgeDataset spec;               // what it is of
  api::EdgeDatasetReport report;       // as said last
  std::string state;                   // of dataset::count()
  std::optional<os::FileFacts> facts;  // of the file at that count
  std::optional<std::chrono::seconds>
      age;  // since every byte was read, as far as the agent knows: it does not see how long it was off
};

/// Two that are counted the same: what one holds is true of the other.
bool same_dataset(const api::EdgeDataset& a, const api::EdgeDataset& b);

/// Not thread-safe, but for different keys.
class DatasetRecords {
 public:
  DatasetRecords(os::FileSystem& fs, os::Path directory) : fs_(fs), directory_(std::move(directory)) {}

  /// Of a former life; before anything else. Nothing: there is none, or it is of another dataset, or damaged (logged; it is counted
  /// anew).
  std::optional<DatasetRecord> read(const api::EdgeDataset& spec);
  Status write(const DatasetRecord& record);
  /// Removes those of other datasets, and what a kill left.
  Status keep_only(const std::set<std::string>& keys);

 private:
  std::string name_of(std::string_view key) const;
  os::FileSystem& fs_;
  const os::Path directory_;
};

}  // namespace varda::agent
