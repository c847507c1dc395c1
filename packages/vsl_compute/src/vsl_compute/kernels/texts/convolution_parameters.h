uint rows; uint columns; uint depth;             // of the product: depth is the inner index
uint channels;                                   // of a group of x
uint width; uint plane;                          // positions of a line and of an image
uint channels_magic; uint width_magic; uint plane_magic; uint shifts; // division by the three: see divided(); shifts of 5 bits
uint b_row;                                      // elements from a row of the second matrix to the next
int x_batch; int x_channel; int x_row; int x_column; // strides of x
uint x_height; uint x_width;
int first_row; int first_column;                 // where the first tap of the first position looks
uint out_batch; uint out_row; uint out_column;   // WINDOWS: strides of out
uint groups; uint chunk;                         // TAPS: groups of channels; positions that a group of threads adds up
