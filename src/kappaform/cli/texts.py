"""Texts of the command: what each subcommand does with files, and why options have no effect."""

EPILOG = """\
kappaform COMMAND --help shows the options of a command and an example.
Ends with 0, or 2 for bad input, 3 for a bug of kappaform, or with 128 and the number of the signal
that ended it (130 after Ctrl-C, 141 if the reader of its output left)."""
DENOISE = """
The noise is estimated: whether it is white, that of photons (shot), or shared by neighbouring
pixels (correlated), and how strong it is. The line of each picture says what was assumed.

The formats are PNG, JPEG, WebP, BMP, TIFF (8 and 16 bit, float, pages) and NPY. The result has the
type of its input and is written beside it, unless -o or --suffix say otherwise. An opacity channel
is kept, and so is what the file says besides its pixels. Of a folder every picture is denoised,
other files are skipped. A result that is there already is kept, which is no error: the same command
goes on after an interruption."""
LEARN = """
Signals are the rows of .npy files, as they are, or random patches of pictures, whose means are
removed. After Ctrl-C what was learned until then is saved."""
PATH = """
Every second signal is not learned from: it validates. With --choose the signals are cut into folds,
each of which validates what is learned from the others. What is chosen is the bound with the least
error; with the error of rebuilt signals, the one for encode and decode."""
EXPLORE = """
Learns a transform of the picture's patches for every bound, and writes one file for a browser: a
slider over the bound, atoms, spectrum, errors, and the picture cleaned or rebuilt under a swipe.
The file needs no network. Of a picture above 512 x 512 pixels the middle is taken."""
REPRODUCE = """
The paper is "Learning Explicitly Conditioned Sparsifying Transforms", arXiv:2403.03168. DIR is a
copy of the public repository pirofti/ConditionedTransformLearning. Finished parts are kept in OUT:
after an interruption the same command goes on."""
TABLE1 = """
Compares PSNR and SSIM of three methods with the printed ones, in table1.csv, table1.md, table1.png
and timings.csv. Man has no public noisy images: its noise is made here, its cells are marked.
Ends with 1 if an image was missing or damaged and its cells are left out."""
FIGURES = """
Learns from patches of barbara, peppers (DIR/peppers.png, not in the public repository) and lena, or
those that are there. Draws errors over the iterations (figures 1, 2) and over the bound (figure 3).
Writes figures.csv, figures_summary.csv, path.csv, figures_timings.csv, figures.md, figure*.png.
Ends with 2 for bad input."""

#: Options that have no effect beside another one, and why.
WITHOUT_EFFECT = (
    ("max_condition", "preset", "the bound is that of a log-det transform"),
    ("quality", "preset", "it is that of the paper"),
    ("value_range", "preset", "its grey levels are 0 to 255"),
    ("device", "preset", "it is computed on the processor"),
    ("gain", "preset", "the denoiser of the paper knows white noise only"),
    ("share", "preset", "the denoiser of the paper learns from every picture"),
    ("movie", "preset", "the denoiser of the paper knows single pictures only"),
    ("volume", "movie", "pages are frames then, not slices"),
    ("share", "movie", "its frames share a transform already"),
    ("share", "model", "the transform is learned already"),
    ("sigma", "gain", "one is the size of white noise, the other that of shot noise"),
    ("preset", "model", "a preset learns its own transform"),
    ("method", "model", "the transform is learned already"),
    ("max_condition", "model", "the transform is learned already"),
    ("seed", "model", "it chooses patches to learn from, and nothing is learned"),
    ("verbose", "json", "the document says everything"),
)
#: For every kind of noise, the option that is its size, and why that of another has no effect.
SIZES = {
    "auto": ("", "kind and size are estimated"),
    "white": ("sigma", "the size of white noise is --sigma"),
    "shot": ("gain", "the size of shot noise is --gain, with --read-noise"),
    "correlated": ("", "its size is estimated"),
}
