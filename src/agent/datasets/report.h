// Reports about datasets, within the limits of EdgeNode.status.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "base/clock.h"
#include "base/result.h"
#include "dataset/count.h"
#include "os/file_system.h"

namespace varda::agent::datasets {

/// Puts the figures of a count into the report; the other members stay. `time` becomes `now` if the
/// data differs from the old report. Invalid UTF-8 in names becomes replacement characters. Names
/// that are too long are cut, and classes that are then equal are merged. The first `classes_max`
/// classes by name are listed; the others are summed up.
void put_figures(const dataset::Counted& counted, std::size_t classes_max, WallTime now,
                 api::EdgeDatasetReport& report);
/// Removes the figures.
void drop_figures(api::EdgeDatasetReport& report);
/// Whether both reports describe the same data.
bool same_figures(const api::EdgeDatasetReport& a, const api::EdgeDatasetReport& b);

/// The number of classes per dataset that fit into a status.
std::size_t classes_max(std::size_t datasets);

struct Failure {
  std::string reason, message;
};
/// The failure for an error of count() or of the tree. `roots` are the directories that the
/// administrator allows. A path outside of them is always forbidden, so that clients cannot probe
/// for files on the node.
Failure failure_of(const Error& error, const os::Path& path, const std::vector<os::Path>& roots);
/// A failure that needs no look at the disk: no root is allowed, or the path is not absolute.
/// Reason "": no failure.
Failure refusal_of(const os::Path& path, const std::vector<os::Path>& roots);

/// At most `bytes_max` bytes of valid UTF-8: invalid bytes are replaced, long text is cut between
/// characters.
std::string fit(std::string_view text, std::size_t bytes_max);

}  // namespace varda::agent::datasets
