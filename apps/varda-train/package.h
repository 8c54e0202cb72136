// The report of a finished run for the registry.
#pragma once

#include <string>

#include "base/context.h"
#include "base/result.h"
#include "codec/digest.h"
#include "codec/json.h"
#include "job.h"
#include "os/file_system.h"
#include "worker/package.h"

namespace varda::trainapp {

using worker::Delivery;
using worker::package;

/// Writes report.html.
Result<Delivery> write_report(os::FileSystem& fs, const Job& job, const Trained& trained);

}  // namespace varda::trainapp
