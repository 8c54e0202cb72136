// What the agent says of a dataset, within the bounds of a status.
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

namespace varda::agent {

/// Puts the figures of a count into the report; all else in it stays. `time` becomes `now` if the data is other than what the
/// report says. Names that are no UTF-8 get replacement characters; those longer than a status takes are cut, and classes that are
/// then the same are one. The first `classes_max` by name are told, the rest is a sum.
void put_figures(const dataset::Counted& counted, std::size_t classes_max, WallTime now, api::EdgeDatasetReport& report);
/// Takes them out again.
void drop_figures(api::EdgeDatasetReport& report);
/// Whether two reports say the same of the data.
bool same_figures(const api::EdgeDatasetReport& a, const api::EdgeDatasetReport& b);

/// How many classes of each dataset a status has room for.
std::size_t classes_max(std::size_t datasets);

struct DatasetFailure {
  std::string reason, message;
};
/// Of what count() or the tree answered. `roots` is what the node's administrator allows. A path outside of them is forbidden,
/// whether or not something is there: nobody learns from us what else is on the node.
DatasetFailure failure_of(const Error& error, const os::Path& path, const std::vector<os::Path>& roots);
/// Nothing is allowed, or the path is none: known without a look. Reason is "" where there is none.
DatasetFailure refusal_of(const os::Path& path, const std::vector<os::Path>& roots);

/// At most `bytes_max` bytes of valid UTF-8: what is none is replaced, what is too long is cut between characters.
std::string fit(std::string_view text, std::size_t bytes_max);

}  // namespace varda::agent
