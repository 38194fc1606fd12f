# make run     run kernel.ipynb, on the sample or on what the KERNEL_… variables name
# make test    run every test, nbval on the notebook included
# make html    write the last run as a page, kernel.html, its definitions folded away
# make outputs run the sample and store its outputs in kernel.ipynb
# make push    push the notebook to Kaggle under your own name

SHELL = bash
PYTHON = python3
KAGGLE = .venv/bin/kaggle
JUPYTER = .venv/bin/jupyter
OUTPUT = "$${KERNEL_OUTPUT_DIR:-.}"
# what is stored and tested is the run with the default settings, whatever the caller's environment says
DEFAULT_SETTINGS = env $$(env | sed -n 's/^\(KERNEL_[A-Z_]*\)=.*/-u \1/p')

run: .venv/installed
	mkdir -p $(OUTPUT)
	set -o pipefail; .venv/bin/papermill --log-output --no-progress-bar kernel.ipynb $(OUTPUT)/kernel.executed.ipynb 2>&1 | \
		grep --line-buffered --invert-match -E '^(Executing|Ending) Cell'

test: .venv/installed
	$(DEFAULT_SETTINGS) .venv/bin/python -m pytest --nbval --nbval-current-env --nbval-cell-timeout 600 \
		--nbval-sanitize-with tests/outputs.cfg kernel.ipynb tests
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

html: .venv/installed
	test -f $(OUTPUT)/kernel.executed.ipynb || $(MAKE) run
	$(JUPYTER) nbconvert --log-level=ERROR --to html --TemplateExporter.extra_template_paths=tests \
		--TemplateExporter.template_file=page.html.j2 $(OUTPUT)/kernel.executed.ipynb --output kernel.html

outputs: .venv/installed
	$(DEFAULT_SETTINGS) .venv/bin/python -c "import nbclient, nbformat; notebook = nbformat.read('kernel.ipynb', 4); \
		nbclient.NotebookClient(notebook, record_timing=False, coalesce_streams=True).execute(); nbformat.write(notebook, 'kernel.ipynb')"

.venv/installed: requirements.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --requirement requirements.txt
	touch $@

# The metadata names an owner. A copy of it gets the name of whoever the client is logged in as.
# The client exits 0 where Kaggle refuses a push, so its answer is read.
push: .venv/installed
	@set -e; owner=$$($(KAGGLE) config view | sed -n 's/^- username: \([[:alnum:]_-]*\)$$/\1/p'); \
	case "$$owner" in ''|None) \
		echo 'Not logged in to Kaggle. Run `$(KAGGLE) auth login`, or save an API token from your' >&2; \
		echo 'Kaggle settings (Settings > API > Generate New Token) as ~/.kaggle/access_token.' >&2; exit 1;; \
	esac; \
	folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT INT TERM; \
	cp kernel.ipynb "$$folder"; \
	sed "s/INSERT_USERNAME_HERE/$$owner/" kernel-metadata.json > "$$folder/kernel-metadata.json"; \
	$(KAGGLE) kernels push -p "$$folder" | tee "$$folder/answer"; \
	grep -q 'successfully pushed' "$$folder/answer"

.PHONY: run test html outputs push
