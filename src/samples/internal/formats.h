// The formats: each function opens one (samples.h describes them).
#pragma once

#include "samples/internal/base.h"

namespace varda::samples::internal {

Opened open_csv(Source source);
Opened open_tsv(Source source);
Opened open_image_folder(Source source);
Opened open_idx(Source source);
Opened open_npy(Source source);
Opened open_npz(Source source);
Opened open_list(Source source);
Opened open_coco(Source source);
Opened open_voc(Source source);

}  // namespace varda::samples::internal
